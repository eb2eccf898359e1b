"""The engine's side of kvcached's shared segment: three little-endian signed 64-bit integers in one file.

``total_size`` is the limit, which a runtime agent rewrites at any time; ``used_size`` and ``prealloc_size`` are the
engine's. Whoever changes the file holds its flock. An engine never waits for that lock: its event loop has streams to
serve, so it tries again a moment later.
"""

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

DIRECTORY_ENV = "AIBRIX_KV_SEGMENT_DIR"
NAME_ENV = "KVCACHED_IPC_NAME"

_LAYOUT = struct.Struct("<3q")


class Busy(Exception):
    """Somebody else holds the segment's lock at this moment."""


class Segment:
    """One segment. The file outlives the engine, and shows a dead engine's figures until the next one rebuilds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def rebuild(self, limit_bytes: int, prealloc_bytes: int = 0) -> None:
        """Start over at ``limit_bytes``; comes before all else, and waits for the lock, as nobody is served yet."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            os.ftruncate(self._file, _LAYOUT.size)
            os.pwrite(self._file, _LAYOUT.pack(limit_bytes, 0, prealloc_bytes), 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def read_limit_bytes(self) -> int:
        limit_bytes: int = _LAYOUT.unpack(os.pread(self._file, _LAYOUT.size, 0))[0]
        return limit_bytes

    def write(self, used_bytes: int, prealloc_bytes: int) -> None:
        """Publish what is mapped; only under ``locked``, with the limit left as it is."""
        os.pwrite(self._file, _LAYOUT.pack(self.read_limit_bytes(), used_bytes, prealloc_bytes), 0)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. Raises Busy at once when somebody else has it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy from None
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def from_environment(environ: Mapping[str, str]) -> Segment | None:
    """The segment that ``KVCACHED_IPC_NAME`` names; None where kvcached is off."""
    name = environ.get(NAME_ENV)
    if not name or environ.get("ENABLE_KVCACHED", "true").lower() not in ("true", "1"):
        return None
    return Segment(Path(environ.get(DIRECTORY_ENV) or "/dev/shm") / name)

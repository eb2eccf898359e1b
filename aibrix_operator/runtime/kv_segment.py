"""kvcached's shared-memory segment of one engine: three little-endian signed 64-bit integers at its start.

total size (the limit in force), used size, preallocated size. The engine takes the same lock to rewrite them.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path

_LAYOUT = struct.Struct("<qqq")
_LIMIT = struct.Struct("<q")
LOCK_RETRY_S = 0.01
LOCK_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class KVSegment:
    """One reading."""

    total_bytes: int
    used_bytes: int
    prealloc_bytes: int

    @property
    def mapped_bytes(self) -> int:
        """KV memory that the engine holds: in use and preallocated."""
        return self.used_bytes + self.prealloc_bytes


class SegmentLockedError(Exception):
    """Someone held the segment's lock for the whole deadline, so nothing was written."""


def read(directory: Path, ipc_name: str) -> KVSegment | None:
    """The segment, or None when there is none or it is too short to be one."""
    try:
        with open(directory / ipc_name, "rb") as file:
            head = file.read(_LAYOUT.size)
    except OSError:
        return None
    return KVSegment(*_LAYOUT.unpack(head)) if len(head) == _LAYOUT.size else None


async def write_limit(directory: Path, ipc_name: str, limit_bytes: int) -> bool:
    """Write the limit under the segment's lock; False when there is no segment to write to.

    The lock is tried every 10 ms for 5 s. A lower limit evicts nothing: the engine stops mapping until it is below.
    """
    try:
        descriptor = os.open(directory / ipc_name, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_size < _LAYOUT.size:
            return False
        await _lock(descriptor, ipc_name)
        os.pwrite(descriptor, _LIMIT.pack(limit_bytes), 0)
        return True
    finally:
        os.close(descriptor)  # which gives the lock back


async def _lock(descriptor: int, ipc_name: str) -> None:
    for _ in range(round(LOCK_DEADLINE_S / LOCK_RETRY_S)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(LOCK_RETRY_S)
        else:
            return
    raise SegmentLockedError(f"KV segment {ipc_name} stayed locked for {LOCK_DEADLINE_S:g} s; its limit is as before")

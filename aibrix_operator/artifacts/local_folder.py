"""A folder or file of this machine as a source: what a node's own disk or a mounted share holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from aibrix_operator.artifacts import errors
from aibrix_operator.artifacts.source import RemoteFile, safe_path

_CHUNK_BYTES = 4 << 20


class LocalSource:
    """The files below a folder, or one file. Links to files are followed: hub caches are made of them."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)

    async def files(self) -> Sequence[RemoteFile]:
        """Every file, with its size and time of change for a version."""
        try:
            found = await asyncio.to_thread(self._look)
        except PermissionError as error:
            raise errors.NotAllowedError(f"{self._root} cannot be read: {error.strerror}") from error
        except OSError as error:
            raise errors.NotFoundError(f"{self._root} is not there: {error.strerror}") from error
        if not found:
            raise errors.NotFoundError(f"{self._root} has no files")
        return found

    def _look(self) -> list[RemoteFile]:
        if not self._root.is_dir():
            return [_file_of(self._root, self._root.name)]

        def refuse(error: OSError) -> None:
            raise error

        return [
            _file_of(Path(folder, name), os.path.relpath(Path(folder, name), self._root))
            for folder, _, names in os.walk(self._root, onerror=refuse)
            for name in names
        ]

    async def read(self, file: RemoteFile, offset: int) -> AsyncIterator[bytes]:
        """The file's bytes, in a thread: a share may hang."""
        path = self._root / file.path if self._root.is_dir() else self._root
        try:
            with path.open("rb") as stream:
                stream.seek(offset)
                while chunk := await asyncio.to_thread(stream.read, _CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise errors.UnreachableError(f"{path}: {error.strerror}") from error

    async def close(self) -> None:
        """Nothing is open between reads."""


def _file_of(path: Path, name: str) -> RemoteFile:
    stat = path.stat()
    return RemoteFile(safe_path(name), stat.st_size, f"{stat.st_mtime_ns}-{stat.st_ino}")

"""Fetches one artifact into one folder: resumed after any end, complete only when it says so.

Used by the sidecar for adapters and by node warm-up for weights. Two fetches into one folder at once are the caller's
to prevent, within a process by a lock, between processes by a folder each.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.artifacts import book, errors
from aibrix_operator.artifacts.address import Address, Origin, parse_address, shown
from aibrix_operator.artifacts.hub import HubSource
from aibrix_operator.artifacts.local_folder import LocalSource
from aibrix_operator.artifacts.object_store import ObjectStoreSource
from aibrix_operator.artifacts.source import UNKNOWN_SIZE, Credentials, RemoteFile, Source
from aibrix_operator.artifacts.web import WebSource

FILES_AT_ONCE = 4
TRIES_WITHOUT_PROGRESS = 4
_FIRST_PAUSE_S = 1.0
RESERVE_BYTES = 64 << 20
"""Left free on the disk: a full one ends more than the download."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fetch is."""

    fetched_bytes: int
    """Of this artifact, on disk, those of earlier tries included."""
    total_bytes: int
    """Sum of the sizes that are known."""
    files: int


OnProgress = Callable[[Progress], None]


def _source_of(address: Address, credentials: Credentials, environment: Mapping[str, str]) -> Source:
    match address.origin:
        case Origin.HUB:
            return HubSource(address, credentials, environment)
        case Origin.WEB:
            return WebSource(address.place, credentials)
        case Origin.LOCAL:
            return LocalSource(address.place)
        case _:
            return ObjectStoreSource(address, credentials, environment)


async def fetch(
    url: str,
    folder: Path,
    credentials: Credentials | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> Path:
    """``folder``, with all files of the artifact at ``url`` in it. Idempotent.

    A folder that is complete for this very address is returned at once, without a call. One that holds another artifact
    loses those files first. Raises ``ArtifactError``; what was fetched so far stays for the next try.
    """
    address = parse_address(url)
    if await asyncio.to_thread(book.is_complete, folder, url):
        return folder
    source = _source_of(address, credentials or {}, os.environ if environment is None else environment)
    try:
        files = await source.files()
        await _Fetch(url, folder, source, files, on_progress).run()
    except OSError as error:
        kind = errors.NoRoomError if error.errno in (errno.ENOSPC, errno.EDQUOT) else errors.FolderError
        raise kind(f"{folder} cannot take {shown(url)}: {error.strerror or error}") from error
    finally:
        await source.close()
    return folder


class _Fetch:
    """One run."""

    def __init__(
        self, url: str, folder: Path, source: Source, files: Sequence[RemoteFile], on_progress: OnProgress | None
    ) -> None:
        self._url = url
        self._folder = folder
        self._source = source
        self._files = sorted(files, key=lambda file: file.path)
        self._on_progress = on_progress
        self._total_bytes = sum(file.size_bytes for file in files if file.size_bytes != UNKNOWN_SIZE)
        self._fetched_bytes = 0

    async def run(self) -> None:
        await asyncio.to_thread(self._prepare)
        self._tell()
        slots = asyncio.Semaphore(FILES_AT_ONCE)
        try:
            async with asyncio.TaskGroup() as group:
                for file in self._files:
                    group.create_task(self._bring(file, slots))
        except BaseExceptionGroup as group_error:
            # One fault ends all; the first tells why.
            raise group_error.exceptions[0] from None
        await asyncio.to_thread(book.write_marker, self._folder, self._url, self._fetched_bytes)

    def _prepare(self) -> None:
        """Keep what is still good, drop what is not, and see whether the rest fits."""
        self._folder.mkdir(parents=True, exist_ok=True)
        book.remove_marker(self._folder)
        before = book.read_book(self._folder)
        versions = {file.path: file.version for file in self._files}
        for path, version in (before.versions if before is not None else {}).items():
            if not version or versions.get(path) != version or (before is not None and before.url != self._url):
                book.remove_file(self._folder, path)
        for file in self._files:
            if before is None or file.path not in before.versions:
                # Nothing says what a file of that name holds.
                book.remove_file(self._folder, file.path)
        book.write_book(self._folder, book.Book(self._url, versions))
        self._fetched_bytes = sum(map(self._held_bytes, self._files))
        missing_bytes = self._total_bytes - self._fetched_bytes
        free_bytes = shutil.disk_usage(self._folder).free
        if missing_bytes > 0 and missing_bytes + RESERVE_BYTES > free_bytes:
            raise errors.NoRoomError(
                f"{shown(self._url)} needs {missing_bytes} more bytes and {RESERVE_BYTES} beside, "
                f"the disk of {self._folder} has {free_bytes} free"
            )

    def _held_bytes(self, file: RemoteFile) -> int:
        target = self._folder / file.path
        if _size(target) == file.size_bytes and file.size_bytes != UNKNOWN_SIZE:
            return file.size_bytes
        return max(_size(book.part_of(target)), 0)

    async def _bring(self, file: RemoteFile, slots: asyncio.Semaphore) -> None:
        async with slots:
            target = self._folder / file.path
            if file.size_bytes != UNKNOWN_SIZE and _size(target) == file.size_bytes:
                return
            await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
            failures = 0
            while True:
                held_bytes = max(_size(book.part_of(target)), 0)
                try:
                    await self._grow(file, book.part_of(target), held_bytes)
                    break
                except errors.UnreachableError:
                    failures = failures + 1 if _size(book.part_of(target)) <= held_bytes else 1
                    if failures >= TRIES_WITHOUT_PROGRESS:
                        raise
                await asyncio.sleep(_FIRST_PAUSE_S * 2 ** (failures - 1))
            await asyncio.to_thread(_finish, book.part_of(target), target)

    async def _grow(self, file: RemoteFile, part: Path, held_bytes: int) -> None:
        """Append what is missing of ``file`` to ``part``."""
        if not file.version or (file.size_bytes != UNKNOWN_SIZE and held_bytes > file.size_bytes):
            # Without a version nobody knows whether what is held is the beginning of what comes.
            await asyncio.to_thread(part.unlink, missing_ok=True)
            self._add(-held_bytes)
            held_bytes = 0
        with part.open("ab") as stream:
            async for chunk in self._source.read(file, held_bytes):
                await asyncio.to_thread(stream.write, chunk)
                held_bytes += len(chunk)
                self._add(len(chunk))
        if file.size_bytes not in (UNKNOWN_SIZE, held_bytes):
            raise errors.UnreachableError(
                f"{file.path} of {shown(self._url)} ended after {held_bytes} of {file.size_bytes} bytes"
            )

    def _add(self, size_bytes: int) -> None:
        self._fetched_bytes += size_bytes
        self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(self._fetched_bytes, self._total_bytes, len(self._files)))


def _size(path: Path) -> int:
    """-1 for what is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _finish(part: Path, target: Path) -> None:
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    part.replace(target)

"""Downloads of whole models that somebody asked the sidecar for. They run beside everything else and end with it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from aibrix_operator.artifacts import book
from aibrix_operator.artifacts.address import Address, Origin, parse_address, shown
from aibrix_operator.artifacts.errors import AddressError, ArtifactError
from aibrix_operator.artifacts.fetching import fetch
from aibrix_operator.artifacts.source import redacted, safe_path
from aibrix_operator.runtime_api.adapter_wire import DownloadRequest, DownloadState

logger = logging.getLogger(__name__)

Status = Literal["not_exist", "downloading", "downloaded", "no_operation", "unknown"]

_CREDENTIAL_NAMES: Mapping[Origin, Mapping[str, str]] = {
    Origin.HUB: {"hf_token": "huggingface_token"},
    Origin.S3: {
        "ak": "aws_access_key_id",
        "sk": "aws_secret_access_key",
        "endpoint": "aws_endpoint_url",
        "region": "aws_region",
    },
    Origin.TOS: {"ak": "TOS_ACCESS_KEY", "sk": "TOS_SECRET_KEY", "endpoint": "TOS_ENDPOINT", "region": "TOS_REGION"},
}
"""A download's settings → our names of credentials."""
_ENVIRONMENT_NAMES = {"hf_endpoint": "HF_ENDPOINT", "hf_revision": "HF_REVISION"}


class Downloads:
    """One task a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tasks: dict[Path, asyncio.Task[None]] = {}

    async def start(self, request: DownloadRequest) -> DownloadState:
        """Begin, or tell how far it is. Raises ``AddressError`` for an address or a name that is none."""
        url = request.model_uri if "://" in request.model_uri else _without_scheme(request.model_uri)
        address = parse_address(url)
        name = request.model_name or _name_of(address)
        root = Path(request.local_dir) if request.local_dir else self._folder
        if not root.is_absolute():
            raise AddressError(f"local_dir {str(root)!r} is no absolute path")
        folder = root / safe_path(name)
        if address.origin is Origin.LOCAL:
            # It is on this machine already; nobody wants it twice.
            is_there = await asyncio.to_thread(os.path.exists, address.place)
            return DownloadState(
                model_name=name,
                model_root_path=address.place,
                source=str(address.origin),
                model_status="downloaded" if is_there else "not_exist",
            )
        settings = {
            key: str(value) for key, value in (request.download_extra_config or {}).items() if value is not None
        }
        if folder not in self._tasks and not await asyncio.to_thread(book.is_complete, folder, url):
            task = asyncio.create_task(self._run(url, folder, address.origin, settings), name=f"download to {folder}")
            self._tasks[folder] = task
            task.add_done_callback(lambda _: self._tasks.pop(folder, None))
        status: Status = "downloading" if folder in self._tasks else "downloaded"
        return DownloadState(
            model_name=name, model_root_path=str(folder), source=str(address.origin), model_status=status
        )

    async def _run(self, url: str, folder: Path, origin: Origin, settings: Mapping[str, str]) -> None:
        names = _CREDENTIAL_NAMES.get(origin, {})
        credentials = {ours: settings[theirs] for theirs, ours in names.items() if settings.get(theirs)}
        told = {ours: settings[theirs] for theirs, ours in _ENVIRONMENT_NAMES.items() if settings.get(theirs)}
        try:
            await fetch(url, folder, credentials, environment={**os.environ, **told})
        except ArtifactError as error:
            logger.warning("the download of %s ended: %s", shown(url), redacted(str(error), credentials))
        else:
            logger.info("%s is downloaded to %s", shown(url), folder)

    async def states(self, folder: str | None) -> list[DownloadState]:
        """What lies below the folder, by name."""
        return await asyncio.to_thread(self._look, Path(folder) if folder else self._folder)

    def _look(self, root: Path) -> list[DownloadState]:
        books = [path for pattern in (book.BOOK, f"*/{book.BOOK}", f"*/*/{book.BOOK}") for path in root.glob(pattern)]
        return sorted(
            (state for path in books if (state := self._state(root, path.parent)) is not None),
            key=lambda state: state.model_name,
        )

    def _state(self, root: Path, folder: Path) -> DownloadState | None:
        begun = book.read_book(folder)
        if begun is None:
            return None
        try:
            source = str(parse_address(begun.url).origin)
        except AddressError:
            source = "unknown"
        status: Status = "no_operation"
        if folder in self._tasks:
            status = "downloading"
        elif book.is_complete(folder, begun.url):
            status = "downloaded"
        return DownloadState(
            model_name=str(folder.relative_to(root)),
            model_root_path=str(folder),
            source=source,
            model_status=status,
        )

    async def close(self) -> None:
        """End what runs; the next start goes on from there."""
        tasks: list[asyncio.Task[Any]] = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _without_scheme(uri: str) -> str:
    return uri if uri.startswith("/") else f"huggingface://{uri}"


def _name_of(address: Address) -> str:
    """A repository keeps its organisation, as a folder; others are named by their last part."""
    if address.origin is Origin.HUB:
        return address.place
    last = (address.path or address.place).rstrip("/").rpartition("/")[2]
    return last.partition("?")[0]

"""A repository of the Hugging Face hub, over its HTTP API.

``huggingface_hub`` was looked at: it downloads in threads that nobody can end, so that a sidecar told to stop would
wait for gigabytes. What is needed of the API are two stable calls: a revision with its files, and a file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import aiohttp

from aibrix_operator.artifacts import errors
from aibrix_operator.artifacts.address import Address
from aibrix_operator.artifacts.source import UNKNOWN_SIZE, Credentials, RemoteFile, safe_path
from aibrix_operator.artifacts.web import TIMEOUT, raise_for, read_from, said

DEFAULT_ENDPOINT = "https://huggingface.co"
DEFAULT_REVISION = "main"


class HubSource:
    """All files of one revision."""

    def __init__(self, address: Address, credentials: Credentials, environment: Mapping[str, str]) -> None:
        self._repository = address.place
        self._revision = address.path or environment.get("HF_REVISION") or DEFAULT_REVISION
        self._what = f"repository {self._repository} at revision {self._revision}"
        self._endpoint = (environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
        token = credentials.get("huggingface_token") or environment.get("HF_TOKEN")
        # aiohttp takes the header off when a redirect leads to another host, as those to the hub's storage do.
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session = aiohttp.ClientSession(timeout=TIMEOUT, headers=headers)

    async def files(self) -> Sequence[RemoteFile]:
        """Pins the revision to a commit first, so that all files are of one."""
        revision = quote(self._revision, safe="")
        url = f"{self._endpoint}/api/models/{self._repository}/revision/{revision}?blobs=true"
        try:
            async with self._session.get(url) as response:
                raise_for(response.status, self._what)
                body = await response.json(content_type=None)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise errors.UnreachableError(f"{self._what}: {said(error)}") from error
        try:
            self._revision = str(body["sha"])
            found = [_file_of(entry) for entry in body["siblings"]]
        except (KeyError, TypeError) as error:
            raise errors.UnreachableError(f"{self._what}: the hub's answer lacks {error}") from error
        if not found:
            raise errors.NotFoundError(f"{self._what} has no files")
        return found

    def read(self, file: RemoteFile, offset: int) -> AsyncIterator[bytes]:
        """A file of the pinned commit."""
        url = f"{self._endpoint}/{self._repository}/resolve/{quote(self._revision, safe='')}/{quote(file.path)}"
        return read_from(self._session, url, {}, offset, f"{file.path} of {self._what}")

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


def _file_of(entry: Mapping[str, Any]) -> RemoteFile:
    large = entry.get("lfs") or {}
    size = large.get("size", entry.get("size"))
    return RemoteFile(
        safe_path(str(entry["rfilename"])),
        size if isinstance(size, int) else UNKNOWN_SIZE,
        str(large.get("sha256") or entry.get("blobId") or ""),
    )

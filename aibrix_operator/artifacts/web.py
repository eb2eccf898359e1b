"""One file of a web server, and the HTTP reading that the hub's source shares with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

import aiohttp

from aibrix_operator.artifacts import errors
from aibrix_operator.artifacts.address import shown
from aibrix_operator.artifacts.source import UNKNOWN_SIZE, Credentials, RemoteFile, safe_path

TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=60)
"""A stalled connection ends; a large file may take all day."""
CHUNK_BYTES = 1 << 20
NO_ENCODING = {"Accept-Encoding": "identity"}
"""Sizes and offsets are those of the file itself."""


def said(error: Exception) -> str:
    """What an error tells. Those of answers repeat the address that was asked, whose query may be a signature."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ServerTimeoutError):
        return str(error)
    return type(error).__name__


def raise_for(status: int, what: str) -> None:
    """Raise the error that ``status`` stands for; a success raises nothing."""
    if status < HTTPStatus.BAD_REQUEST:
        return
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise errors.NotAllowedError(f"{what} is not allowed with these credentials (HTTP {status})")
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        raise errors.NotFoundError(f"{what} is not there (HTTP {status})")
    if status == HTTPStatus.PRECONDITION_FAILED:
        raise errors.ChangedError(f"{what} changed while it was fetched")
    raise errors.UnreachableError(f"{what}: the server answers HTTP {status}")


async def read_from(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], offset: int, what: str
) -> AsyncIterator[bytes]:
    """The body of ``url`` from ``offset`` on. A server that ignores the range sends what we have; it is passed over."""
    asked = {**headers, **NO_ENCODING, **({"Range": f"bytes={offset}-"} if offset else {})}
    try:
        async with session.get(url, headers=asked) as response:
            if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise errors.ChangedError(f"{what} is shorter than it was")
            raise_for(response.status, what)
            to_skip = offset if response.status != HTTPStatus.PARTIAL_CONTENT else 0
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                rest = chunk[to_skip:]
                to_skip -= len(chunk) - len(rest)
                if rest:
                    yield rest
    except (aiohttp.ClientError, OSError) as error:
        raise errors.UnreachableError(f"{what}: {said(error)}") from error


class WebSource:
    """One file, named as the last part of its address."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self._url = url
        self._what = shown(url)
        authorization = credentials.get("authorization")
        self._headers = {"Authorization": authorization} if authorization else {}
        self._session = aiohttp.ClientSession(timeout=TIMEOUT)

    async def files(self) -> Sequence[RemoteFile]:
        """The file, as a HEAD request tells of it; a server without HEAD tells nothing but that it is there."""
        path = safe_path(unquote(urlsplit(self._url).path.rpartition("/")[2]))
        try:
            async with self._session.head(
                self._url, headers={**self._headers, **NO_ENCODING}, allow_redirects=True
            ) as response:
                if response.status in (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED):
                    return [RemoteFile(path, UNKNOWN_SIZE, "")]
                raise_for(response.status, self._what)
                size = response.headers.get("Content-Length", "")
                version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        except (aiohttp.ClientError, OSError) as error:
            raise errors.UnreachableError(f"{self._what}: {said(error)}") from error
        return [RemoteFile(path, int(size) if size.isdecimal() else UNKNOWN_SIZE, version)]

    def read(self, file: RemoteFile, offset: int) -> AsyncIterator[bytes]:
        """Only the version that was listed, where the server tells versions by strong tags."""
        is_strong = file.version.startswith('"')
        headers = {**self._headers, **({"If-Match": file.version} if is_strong else {})}
        return read_from(self._session, self._url, headers, offset, self._what)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

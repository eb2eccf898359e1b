"""Asks every call but the two probes for the bearer token, when one is configured."""

from __future__ import annotations

import hmac
import logging
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/ready"})
SCHEME = "bearer "


class TokenError(Exception):
    """The token file is empty or cannot be read, and so nobody could be told apart. Ends the start."""


class TokenFile:
    """The token in a file. A Secret's volume changes it in place, so it is read again when the file is another one."""

    def __init__(self, path: Path) -> None:
        """Raises ``TokenError``."""
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._token = b""
        try:
            self._refresh()
        except (OSError, TokenError) as error:
            raise TokenError(f"token file {path} gives no token: {error}") from error

    def matches(self, given: bytes) -> bool:
        """Whether this is the token, in a time that tells nothing of it."""
        try:
            self._refresh()
        except (OSError, TokenError) as error:
            logger.warning("token file %s cannot be read again, the last token stays: %s", self._path, error)
        return hmac.compare_digest(given, self._token)

    def _refresh(self) -> None:
        stat = self._path.stat()
        stamp = (stat.st_mtime_ns, stat.st_ino)
        if stamp == self._stamp:
            return
        token = self._path.read_bytes().strip()
        if not token:
            raise TokenError("it is empty")
        self._token, self._stamp = token, stamp


class TokenMiddleware:
    """Answers 401 to calls that carry no token or another one."""

    def __init__(self, app: ASGIApp, token_file: TokenFile) -> None:
        self._app = app
        self._token_file = token_file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let probes and calls with the token through."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._is_allowed(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        refusal = JSONResponse(
            {"detail": "a bearer token is needed"}, status_code=401, headers={"WWW-Authenticate": "Bearer"}
        )
        await refusal(scope, receive, send)

    def _is_allowed(self, headers: Headers) -> bool:
        given = headers.get("authorization", "")
        if given[: len(SCHEME)].lower() != SCHEME:
            return False
        return self._token_file.matches(given[len(SCHEME) :].strip().encode())

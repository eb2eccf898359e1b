"""The page's HTTP server: a few files and two questions, all of them GET.

However many browsers look, the cluster is looked at once a second at most, and not at all while none does.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from aibrix_operator.explain import claim_report, looking
from aibrix_operator.explain.looking import CannotLook, Look
from aibrix_operator.page import frame
from aibrix_operator.page.sources import Source

FRAME_PATH: Final = "/api/frame"
CLAIM_PATH: Final = "/api/claims/{namespace}/{name}"
INTERVAL_S: Final = 1.0
LEISURE: Final = 9.0
"""Looks come this many times their own length apart at least: they take a tenth of the process' time at most."""
_SHUTDOWN_S: Final = 1.0
_STATIC: Final = resources.files("aibrix_operator.page") / "static"
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_SAFETY: Final = {
    # Nothing but our own files is loaded, and no page may frame this one.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a page is served."""

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine, or this Pod, can reach it."""
        return _is_loopback(self.host)


def parse_address(url: str) -> Address:
    """The address in ``url``, such as ``http://127.0.0.1:8090``. ValueError for anything else."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or not parts.hostname or not port or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{url!r} is no address for the page: give one such as http://127.0.0.1:8090")
    return Address(parts.hostname, port)


class Page:
    """Serves the page of one source at one address."""

    def __init__(
        self, address: Address, source: Source, scope: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``scope``: the namespace that is looked at, or words for all of them."""
        self._address = address
        self._looks = _Looks(source, scope, clock)
        app = web.Application(middlewares=[self._guarded])
        for file in _STATIC.iterdir():
            path = "/" if file.name == "index.html" else f"/{file.name}"
            app.router.add_get(path, _file(file.read_bytes(), _TYPES[file.name.rpartition(".")[2]]))
        app.router.add_get(FRAME_PATH, self._frame)
        app.router.add_get(CLAIM_PATH, self._claim)
        self._runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=_SHUTDOWN_S)

    async def start(self) -> None:
        """Serve. OSError when the address is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address.host, self._address.port).start()

    async def stop(self) -> None:
        """Stop serving; again is fine."""
        await self._runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Headers of caution on every answer. A page of this machine alone is asked for by this machine's names only:
        another site's name that was made to point here (DNS rebinding) gets nothing."""
        if self._address.is_local and not _is_loopback(_host_of(request)):
            return web.Response(status=421, text="this page is served under localhost only\n", headers=_SAFETY)
        try:
            answer = await handler(request)
        except web.HTTPException as refused:
            answer = web.Response(status=refused.status, text=f"{refused.reason}\n")
        answer.headers.update({name: value for name, value in _SAFETY.items() if name not in answer.headers})
        return answer

    async def _frame(self, request: web.Request) -> web.Response:
        """The frame of now, and nothing but 304 when the browser has it already."""
        try:
            seen = await self._looks.newest()
        except CannotLook as error:
            return _json({"error": str(error)}, status=503)
        if request.headers.get("If-None-Match") == seen.etag:
            return web.Response(status=304, headers={"ETag": seen.etag})
        answer = web.Response(body=seen.body, content_type="application/json", headers={"ETag": seen.etag})
        answer.enable_compression()
        return answer

    async def _claim(self, request: web.Request) -> web.Response:
        """All that ``explain claim`` says of one claim."""
        where, name = request.match_info["namespace"], request.match_info["name"]
        try:
            seen = await self._looks.newest()
        except CannotLook as error:
            return _json({"error": str(error)}, status=503)
        try:
            report = looking.report_on(seen.look, where, name)
        except CannotLook as error:
            return _json({"error": str(error)}, status=404)
        return _json(claim_report.to_json(report))


@dataclass(frozen=True, slots=True)
class _Seen:
    look: Look
    body: bytes
    etag: str


class _Looks:
    """The newest look, shared by all who ask."""

    def __init__(self, source: Source, scope: str, clock: Callable[[], float]) -> None:
        self._source = source
        self._scope = scope
        self._clock = clock
        self._lock = asyncio.Lock()
        self._seen: _Seen | None = None
        self._good_until_s = 0.0

    async def newest(self) -> _Seen:
        """A look that is an interval old at most. CannotLook when there can be none."""
        async with self._lock:  # who asks while a look is under way gets that one
            if self._seen is not None and self._clock() < self._good_until_s:
                return self._seen
            look = await self._source.look()
            began_s = self._clock()
            # In a thread, since a large frame takes long: passes go on meanwhile, over values that nobody changes.
            body = await asyncio.to_thread(_render, look, self._scope)
            took_s = self._clock() - began_s
            self._seen = _Seen(look, body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
            self._good_until_s = began_s + max(INTERVAL_S, LEISURE * took_s)
            return self._seen


def _render(look: Look, scope: str) -> bytes:
    return orjson.dumps(frame.build(look, scope))


def _file(body: bytes, content_type: str) -> _Handler:
    """Hands out one file."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type, charset="utf-8")

    return answer


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


def _host_of(request: web.Request) -> str:
    """The name that the browser asked for, without its port."""
    return urlsplit(f"//{request.host}").hostname or ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")

"""A small HTTP/1.1 server on asyncio and httptools: what the simulated engine needs, and as little to import.

One request at a time on a connection, keep-alive, bodies of any size, answers whole or streamed in chunks. When a
client goes away its handler is cancelled, unless the route says that it must finish.
"""

import asyncio
import urllib.parse
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httptools
import orjson

KEEP_ALIVE_S = 5.0  # uvicorn's, so that proxies meet the same closes as with a real engine
JSON = "application/json"
LISTEN_ENV = "AIBRIX_SIM_LISTEN"
"""Names all addresses of the Pod that an engine plays in, separated by commas."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    query_string: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def query(self, name: str, default: str) -> str:
        """The last value of a query parameter."""
        return (self.query_all(name) or [default])[-1]

    def query_all(self, name: str) -> list[str]:
        pairs = urllib.parse.parse_qsl(self.query_string, keep_blank_values=True)
        return [value for key, value in pairs if key == name]


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer; ``content_type`` None sends none."""

    body: bytes = b""
    status: int = 200
    content_type: str | None = JSON


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer in chunks. The headers go out before the first chunk is there.

    ``close`` is called once, when all chunks are out or the client is gone.
    """

    chunks: AsyncIterator[bytes]
    close: Callable[[], None]
    content_type: str = "text/event-stream; charset=utf-8"


def json_response(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status)


Handler = Callable[[HttpRequest], Awaitable[Response | Stream]]


@dataclass(frozen=True, slots=True)
class Route:
    handler: Handler
    finishes: bool = False  # goes on when its client is gone


class Router:
    """(path, method) -> route, with the answers that FastAPI gives to everything else."""

    def __init__(self) -> None:
        self._routes: dict[str, dict[str, Route]] = {}

    def add(self, method: str, path: str, handler: Handler, *, finishes: bool = False) -> None:
        self._routes.setdefault(path, {})[method] = Route(handler, finishes)

    def find(self, request: HttpRequest) -> Route:
        methods = self._routes.get(request.path)
        if methods is None:
            return Route(_not_found)
        return methods.get(request.method, Route(_method_not_allowed))


async def _not_found(_: HttpRequest) -> Response:
    return json_response({"detail": "Not Found"}, 404)


async def _method_not_allowed(_: HttpRequest) -> Response:
    return json_response({"detail": "Method Not Allowed"}, 405)


def listening_addresses(host: str, environ: Mapping[str, str]) -> list[str]:
    """Where to listen when told ``host``: there, except that all of a simulated Pod's addresses are listed.

    A real Pod has a network of its own, so that ``0.0.0.0`` there is the Pod's loopback and address alone.
    """
    own = environ.get(LISTEN_ENV)
    return own.split(",") if own and host in ("0.0.0.0", "::") else [host]


async def serve(router: Router, hosts: str | Sequence[str], port: int) -> asyncio.Server:
    """Listen; raises OSError when the port is taken."""
    return await asyncio.get_running_loop().create_server(lambda: _Connection(router), hosts, port, backlog=2048)


class _Connection(asyncio.Protocol):
    """One client. Requests that arrive while one is answered wait in ``_queue``."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._queue: deque[tuple[HttpRequest, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._route: Route | None = None
        self._answering = False  # a streamed answer is under way
        self._writable = asyncio.Event()
        self._writable.set()
        self._idle: asyncio.TimerHandle | None = None
        self._start_message()

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._stop_idle_timer()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._close()  # no route speaks another protocol
        except httptools.HttpParserError:
            self._write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\nInvalid HTTP request received.")
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writable.set()
        self._queue.clear()
        self._stop_idle_timer()
        if self._task is not None and self._route is not None and not self._route.finishes:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # httptools' callbacks

    def on_message_begin(self) -> None:
        self._start_message()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path, _, query = self._url.decode("latin-1").partition("?")
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=urllib.parse.unquote(path),
            query_string=query,
            headers=self._headers,
            body=b"".join(self._body),
        )
        self._queue.append((request, self._parser.should_keep_alive()))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._answer_queue())

    # answering

    def _start_message(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    async def _answer_queue(self) -> None:
        try:
            while self._queue:
                request, keep_alive = self._queue.popleft()
                self._route = self._router.find(request)
                await self._answer(await self._route.handler(request), keep_alive)
                if not keep_alive:
                    self._close()
        except Exception:
            # As uvicorn: the trace goes to the log, the client gets a bare 500 or, in the middle of an answer, a cut.
            if not self._answering:
                self._write(_head(500, "text/plain; charset=utf-8", 21, keep_alive=False) + b"Internal Server Error")
            self._close()
            raise
        finally:
            self._task = None
            self._start_idle_timer()

    async def _answer(self, answer: Response | Stream, keep_alive: bool) -> None:
        if isinstance(answer, Response):
            head = _head(answer.status, answer.content_type, len(answer.body), keep_alive=keep_alive)
            self._write(head + answer.body)
            return
        self._answering = True
        self._write(_head(200, answer.content_type, None, keep_alive=keep_alive))
        try:
            async for chunk in answer.chunks:
                self._write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await self._writable.wait()
        finally:
            answer.close()
        self._write(b"0\r\n\r\n")
        self._answering = False

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _start_idle_timer(self) -> None:
        if self._transport is not None:
            self._idle = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._close)

    def _stop_idle_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


def _head(status: int, content_type: str | None, length: int | None, *, keep_alive: bool) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "server: uvicorn"]
    lines.append("transfer-encoding: chunked" if length is None else f"content-length: {length}")
    if content_type is not None:
        lines.append(f"content-type: {content_type}")
    if not keep_alive:
        lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()

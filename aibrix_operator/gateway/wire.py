"""The server that Envoy asks: its HTTP ``ext_authz`` requests in, an exchange's answers out.

One small request per request of a client goes through here, so this is a bare asyncio protocol. Envoy is its only
client, keeps its connections, and sends one request at a time on each. What an answer can and cannot carry through
``ext_authz`` is settled here, beside the part of Envoy's configuration that undoes it (``envoy.config``):

- a refusal with a 5xx would reach the client as an empty 403: it travels as 460 to 464;
- an answer has one header of a name, for the engine or for the client or for both: the Pod's name that the client
  gets as ``target-pod`` travels under another name.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, cast

import httptools

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.exchange import Answer, Exchange, Forwarded, Question, Refused
from aibrix_operator.gateway.verdict import Refuse

CLIENT_POD: Final = "x-aibrix-pod"
"""Carries the client's ``target-pod``."""
STATUS_ON_WIRE: Final = {500: 460, 501: 461, 502: 462, 503: 463, 504: 464}
"""Status of a refusal → the one that ``ext_authz`` lets through."""
BACKLOG: Final = 4096
"""Each question that waits holds a connection, and a burst of them comes at once."""

_SCRATCH_BYTES: Final = 1 << 14
_LONG_BYTES: Final = 1 << 14
"""A body of more is read straight into its place, once its head is parsed."""
_SPARE_BYTES: Final = 1 << 20
_SPARES: Final = 16
"""Places for bodies that are used again: fresh memory for each is taken from the kernel page by page."""
_log = logging.getLogger(__name__)
_READ = {name.encode(): name for name in headers.READ}
_FORWARD_LINE = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n"
_STOPPING = Refuse(503, "the gateway is stopping", code="service_unavailable", retry_after_s=1)


class Server:
    """Hands questions to an exchange, until it is told to stop."""

    def __init__(self, exchange: Exchange, *, body_limit_bytes: int) -> None:
        self.exchange = exchange
        self.body_limit_bytes = body_limit_bytes
        self.is_stopping = False
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        """Where a connection's bytes are between one read and its parsing."""
        self._spare: list[bytearray] = []
        self._connections: set[_Connection] = set()
        self._waiting: set[asyncio.Future[Answer]] = set()

    def take_place(self, size: int) -> bytearray:
        """Room for ``size`` bytes or more. A spare one that is too small makes room for a larger."""
        if self._spare and len(place := self._spare.pop()) >= size:
            return place
        return bytearray(1 << (size - 1).bit_length() if size <= _SPARE_BYTES else size)

    def give_back(self, place: bytearray) -> None:
        """Its content is not needed any more."""
        if len(self._spare) < _SPARES and len(place) <= _SPARE_BYTES:
            self._spare.append(place)

    def stop_asking(self) -> None:
        """From now on every new question is refused with 503; what waits for its answer goes on waiting."""
        self.is_stopping = True

    @property
    def waiting(self) -> int:
        """Questions that wait for their answers."""
        return len(self._waiting)

    async def refuse_waiting(self) -> None:
        """What still waits for its answer is refused with 503, too."""
        waiting = tuple(self._waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _close(self) -> None:
        self.stop_asking()
        await self.refuse_waiting()
        for connection in tuple(self._connections):
            connection.close()


@asynccontextmanager
async def serve(exchange: Exchange, address: Address, *, body_limit_bytes: int) -> AsyncIterator[Server]:
    """Answer Envoy at ``address`` while the context is open."""
    server = Server(exchange, body_limit_bytes=body_limit_bytes)
    loop = asyncio.get_running_loop()
    if address.path:
        listener = await loop.create_unix_server(lambda: _Connection(server), address.path, backlog=BACKLOG)
    else:
        listener = await loop.create_server(
            lambda: _Connection(server), address.host, address.port, backlog=BACKLOG, reuse_address=True
        )
    try:
        yield server
    finally:
        listener.close()
        await server._close()
        await listener.wait_closed()


class _Connection(asyncio.BufferedProtocol):
    """One connection of Envoy's. Questions on it are answered one after the other, in their order.

    What comes is parsed from a buffer that all connections share, each for one read. The rest of a long body is read
    straight into its place instead: in small pieces, a body of 220 KB costs the loop three times as much.
    """

    __slots__ = (
        "_at",
        "_body",
        "_body_bytes",
        "_headers",
        "_is_direct",
        "_length",
        "_long",
        "_parser",
        "_queue",
        "_server",
        "_task",
        "_transport",
        "_url",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._queue: deque[Question | Refuse] = deque()
        self._task: asyncio.Future[Answer] | None = None
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._length = 0
        self._long: bytearray | None = None
        """A long body, of which ``_at`` bytes are there."""
        self._at = 0
        self._is_direct = False
        """The loop reads into ``_long``; the parser knows nothing of it."""

    def close(self) -> None:
        """Close when what was written is out."""
        if self._transport is not None:
            self._transport.close()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Envoy closes when its client has gone: nobody waits for the answer any more."""
        self._transport = None
        self._server._connections.discard(self)
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._is_direct and self._long is not None:
            return memoryview(self._long)[self._at : self._length]
        return self._server.scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_direct:
            self._at += nbytes
            if self._at == self._length:
                self._is_direct = False
                self._ask_next()
                self._parser = httptools.HttpRequestParser(self)  # the old one still waits for this body
            return
        try:
            self._parser.feed_data(self._server.scratch[:nbytes])
        except httptools.HttpParserError as problem:
            _log.warning("what was sent to the server for Envoy is no HTTP request: %s", problem)
            if self._transport is not None:
                self._transport.abort()
            return
        self._is_direct = self._long is not None

    def pause_writing(self) -> None:
        """Envoy does not read its answers: take no more questions meanwhile."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    # httptools' side

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower == b"content-length":
            self._length = int(value)  # the parser has checked it
            return
        known = _READ.get(lower)
        if known is None:
            return
        text = value.decode("latin-1")
        before = self._headers.get(known)
        self._headers[known] = text if before is None else f"{before},{text}"

    def on_headers_complete(self) -> None:
        if _LONG_BYTES < self._length <= self._server.body_limit_bytes:
            self._long = self._server.take_place(self._length)
            self._at = 0

    def on_body(self, body: bytes) -> None:
        size = len(body)
        if self._long is not None:
            self._long[self._at : self._at + size] = body
            self._at += size
            return
        self._body_bytes += size
        if self._body_bytes <= self._server.body_limit_bytes:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._ask_next()

    def _ask_next(self) -> None:
        """A request is whole: ask, or let it wait for those before it."""
        limit = self._server.body_limit_bytes
        asked: Question | Refuse
        if self._body_bytes > limit:
            asked = Refuse(413, f"the request body is larger than {limit} bytes")
        else:
            method = self._parser.get_method().decode("latin-1")
            url = self._url.decode("latin-1")
            if self._long is None:
                body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
                asked = Question(method, url, self._headers, body)
            else:
                view = memoryview(self._long)[: self._length]
                asked = Question(method, url, self._headers, view, partial(self._server.give_back, self._long))
        self._url = b""
        self._headers = {}
        self._body = []
        self._body_bytes = 0
        self._length = 0
        self._long = None
        if self._task is not None:
            self._queue.append(asked)
        else:
            self._ask(asked)

    # answering

    def _ask(self, asked: Question | Refuse) -> None:
        server = self._server
        if server.is_stopping:
            self._refuse(_STOPPING)
            return
        if isinstance(asked, Refuse):
            self._refuse(asked)
            return
        try:
            answer = server.exchange.answer(asked)
        except Exception as problem:  # whatever it is, this client is told, and the others are served
            self._failed(problem)
            return
        if isinstance(answer, (Forwarded, Refused)):
            self._write(answer)
            return
        task = asyncio.ensure_future(answer)
        self._task = task
        server._waiting.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Future[Answer]) -> None:
        self._server._waiting.discard(task)
        self._task = None
        if task.cancelled():
            self._refuse(_STOPPING)
        elif (problem := task.exception()) is not None:
            self._failed(problem)
        else:
            self._write(task.result())
        while self._queue and self._task is None and self._transport is not None:
            self._ask(self._queue.popleft())

    def _failed(self, problem: BaseException) -> None:
        """The exchange has a fault: the client is told, and the log says where."""
        _log.error("a question could not be answered", exc_info=problem)
        self._refuse(Refuse(500, "internal error of the gateway"))

    def _refuse(self, refuse: Refuse) -> None:
        self._write(Refused(refuse.status, refuse.response_headers(), refuse.body()))

    def _write(self, answer: Answer) -> None:
        if self._transport is None:
            return
        try:
            data = encode(answer)
        except ValueError as problem:
            self._failed(problem)
        else:
            self._transport.write(data)


def encode(answer: Answer) -> bytes:
    """An answer as an HTTP response. ValueError for a header that does not fit into its line."""
    if isinstance(answer, Forwarded):
        lines = [f"{name}: {value}\r\n" for name, value in answer.upstream]
        told = {name for name, _ in answer.upstream}
        for name, value in answer.client:
            if name == headers.TARGET:
                lines.append(f"{CLIENT_POD}: {value}\r\n")
            elif name not in told:  # of one that both sides get, Envoy gives the same value to both
                lines.append(f"{name}: {value}\r\n")
        text = "".join(lines)
        if text.count("\n") != len(lines) or text.count("\r") != len(lines):
            raise ValueError(f"a header of an answer has a line break: {text!r}")
        return (_FORWARD_LINE + text + "\r\n").encode("latin-1")
    lines = [f"{name}: {value}\r\n" for name, value in answer.headers]
    text = "".join(lines)
    if text.count("\n") != len(lines) or text.count("\r") != len(lines):
        raise ValueError(f"a header of a refusal has a line break: {text!r}")
    status = STATUS_ON_WIRE.get(answer.status, answer.status)
    head = f"HTTP/1.1 {status} Refused\r\ncontent-length: {len(answer.body)}\r\n{text}\r\n"
    return head.encode("latin-1") + answer.body

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
        self._connections: set[_Connection] = set()
        self._waiting: set[asyncio.Future[Answer]] = set()

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


class _Connection(asyncio.Protocol):
    """One connection of Envoy's. Questions on it are answered one after the other, in their order."""

    __slots__ = ("_body", "_body_bytes", "_headers", "_parser", "_queue", "_server", "_task", "_transport", "_url")

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

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as problem:
            _log.warning("what was sent to the server for Envoy is no HTTP request: %s", problem)
            if self._transport is not None:
                self._transport.abort()

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
        known = _READ.get(name.lower())
        if known is None:
            return
        text = value.decode("latin-1")
        before = self._headers.get(known)
        self._headers[known] = text if before is None else f"{before},{text}"

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes <= self._server.body_limit_bytes:
            self._body.append(body)

    def on_message_complete(self) -> None:
        limit = self._server.body_limit_bytes
        chunks = self._body
        asked: Question | Refuse
        if self._body_bytes > limit:
            asked = Refuse(413, f"the request body is larger than {limit} bytes")
        else:
            asked = Question(
                self._parser.get_method().decode("latin-1"),
                self._url.decode("latin-1"),
                self._headers,
                chunks[0] if len(chunks) == 1 else b"".join(chunks),
            )
        self._url = b""
        self._headers = {}
        self._body = []
        self._body_bytes = 0
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

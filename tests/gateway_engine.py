"""A stand-in engine behind Envoy: it keeps what it was sent, and answers as it was told to.

Without orders it echoes: a JSON answer with ``model``, ``usage`` and the request as it came, or, when the body says
``"stream": true``, the same as a chat stream of a few events.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import httptools
import orjson

JSON = ("content-type", "application/json")
EVENTS = ("content-type", "text/event-stream; charset=utf-8")


@dataclass(frozen=True)
class Seen:
    """One request as it came. ``headers`` in their order, names in lower case."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The value, several joined by a comma; None when it was not sent."""
        values = [value for key, value in self.headers if key == name]
        return ",".join(values) if values else None

    def json(self):
        return orjson.loads(self.body)


@dataclass
class Reply:
    """What to answer. Several ``chunks`` go out one write at a time; one goes with its content-length."""

    status: int = 200
    headers: Sequence[tuple[str, str]] = (JSON,)
    chunks: Sequence[bytes] = (b"",)
    before: asyncio.Event | None = None
    """Awaited before anything is sent."""
    after_first: asyncio.Event | None = None
    """Awaited when the first chunk is out."""
    delay_s: float = 0.0
    """Before anything is sent."""
    pause_s: float = 0.0
    """Between two chunks, so that they do not arrive together."""
    aborts: bool = False
    """The connection is cut where the last chunk would end."""
    closes_at_once: bool = False
    """It is cut before anything is sent."""


def json_reply(document, *, status: int = 200, content_type: str = "application/json") -> Reply:
    return Reply(status=status, headers=(("content-type", content_type),), chunks=(orjson.dumps(document),))


def stream_reply(*chunks: bytes, **more) -> Reply:
    return Reply(headers=(EVENTS,), chunks=(*chunks, b""), **more)


def event(document, *, end: str = "\n") -> bytes:
    """One server-sent event with ``document`` as its data."""
    return b"data: " + orjson.dumps(document) + (end * 2).encode()


def echo(seen: Seen) -> Reply:
    """What an engine without orders answers."""
    try:
        asked = seen.json() if seen.body else {}
    except orjson.JSONDecodeError:
        asked = {}
    asked = asked if isinstance(asked, dict) else {}
    model = asked.get("model", "m")
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    if asked.get("stream") is True:
        delta = [
            {"id": "c", "object": "chat.completion.chunk", "model": model, "choices": [{"index": 0, "delta": delta}]}
            for delta in ({"role": "assistant", "content": ""}, {"content": "one"}, {"content": " two"})
        ]
        last = {"id": "c", "object": "chat.completion.chunk", "model": model, "choices": [], "usage": usage}
        return stream_reply(*(event(part) for part in (*delta, last)), b"data: [DONE]\n\n")
    message = {"role": "assistant", "content": "one two"}
    return json_reply(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage,
            "echo": {
                "method": seen.method,
                "path": seen.path,
                "headers": seen.headers,
                "body": seen.body.decode("utf-8", "replace"),
            },
        }
    )


@dataclass
class Engine:
    """A running stand-in. ``reply`` is what the next requests get."""

    name: str = "engine"
    reply: Callable[[Seen], Reply] = echo
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    host: str = "127.0.0.1"
    running: int = 0
    """Requests that it has not answered whole."""
    most_running: int = 0
    cut: int = 0
    """Requests whose connection was closed before they were answered whole."""
    connections: set["_Connection"] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@contextlib.asynccontextmanager
async def running_engine(name: str = "engine", *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Engine]:
    """One engine in this event loop, on a port of its own."""
    engine = Engine(name, host=host)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(engine), host, port, backlog=4096)
    engine.port = server.sockets[0].getsockname()[1]
    try:
        yield engine
    finally:
        server.close()
        for connection in list(engine.connections):
            connection.close()
        await server.wait_closed()


class _Connection(asyncio.Protocol):
    """One connection, one request at a time, as Envoy uses it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parser = httptools.HttpRequestParser(self)
        self._answering: asyncio.Task | None = None
        self._start()

    def _start(self) -> None:
        self._path = b""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport) -> None:
        self._transport = transport
        self._engine.connections.add(self)

    def connection_lost(self, _error) -> None:
        self._engine.connections.discard(self)
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode().lower(), value.decode("latin-1")))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode()
        seen = Seen(method, self._path.decode(), tuple(self._headers), b"".join(self._body))
        self._start()
        self._engine.seen.append(seen)
        self._answering = asyncio.get_running_loop().create_task(self._answer(seen))

    async def _answer(self, seen: Seen) -> None:
        engine = self._engine
        engine.running += 1
        engine.most_running = max(engine.most_running, engine.running)
        is_whole = False
        try:
            await self._send(engine.reply(seen), is_head=seen.method == "HEAD")
            is_whole = True
        finally:
            engine.running -= 1
            engine.cut += not is_whole

    async def _send(self, reply: Reply, *, is_head: bool) -> None:
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        if reply.before is not None:
            await reply.before.wait()
        if reply.closes_at_once:
            self._transport.close()
            return
        in_chunks = len(reply.chunks) > 1 or reply.aborts
        lines = [f"HTTP/1.1 {reply.status} Status", *(f"{name}: {value}" for name, value in reply.headers)]
        has_body = reply.status not in (204, 304)
        if has_body:
            lines.append("transfer-encoding: chunked" if in_chunks else f"content-length: {len(reply.chunks[0])}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        if not in_chunks:
            self._transport.write(head if is_head or not has_body else head + reply.chunks[0])
            return
        self._transport.write(head)
        for position, chunk in enumerate(reply.chunks):
            if chunk:
                self._transport.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await asyncio.sleep(reply.pause_s)
            if position == 0 and reply.after_first is not None:
                await reply.after_first.wait()
        if reply.aborts:
            self._transport.close()  # what was written goes out first
        else:
            self._transport.write(b"0\r\n\r\n")

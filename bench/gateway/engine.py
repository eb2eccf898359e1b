"""An engine that is never the bottleneck: ``python -m bench.gateway.engine PORT…``.

One process answers on every port with the same bytes: a chat completion, or a stream of 200 events when the body asks
for one. It reads no JSON and writes no log.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any, cast

import httptools
import orjson
import uvloop

CHUNKS = 200
_TEXT = "A card is divided between the models that live on it, and each gets what it needs. " * 3
_USAGE = {"prompt_tokens": 200, "completion_tokens": 60, "total_tokens": 260}


def _answer(body: bytes, kind: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(number: int) -> bytes:
    choices = [{"index": 0, "delta": {"content": f" word{number}"}, "finish_reason": None}]
    event: dict[str, Any] = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "m",
        "choices": choices,
    }
    if number == CHUNKS - 1:
        event |= {"choices": [], "usage": _USAGE}
    return b"data: %b\n\n" % orjson.dumps(event)


_COMPLETION = _answer(
    orjson.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": _TEXT}, "finish_reason": "stop"}],
            "usage": _USAGE,
        }
    )
)
_OTHERS = {
    b"/health": _answer(b""),
    b"/v1/models": _answer(orjson.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]})),
    b"/get_model_info": _answer(orjson.dumps({"model_path": "m", "is_generation": True})),
    b"/get_server_info": _answer(orjson.dumps({"model_path": "m", "served_model_name": "m"})),
    b"/server_info": _answer(orjson.dumps({"model_path": "m", "served_model_name": "m"})),
    b"/model_info": _answer(orjson.dumps({"model_path": "m", "is_generation": True})),
}
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_STREAM = [_chunk(_event(number)) for number in range(CHUNKS)]
_STREAM_END = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._streams = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path, self._streams = url, False

    def on_body(self, body: bytes) -> None:
        if b'"stream":true' in body:
            self._streams = True

    def on_message_complete(self) -> None:
        if not self._streams:
            self._transport.write(_OTHERS.get(self._path, _COMPLETION))
            return
        self._transport.write(_STREAM_HEAD)
        for chunk in _STREAM:
            self._transport.write(chunk)
        self._transport.write(_STREAM_END)


async def _serve(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    servers = [await loop.create_server(_Connection, "127.0.0.1", port, backlog=4096) for port in ports]
    await stop.wait()
    for server in servers:
        server.close()


if __name__ == "__main__":
    uvloop.run(_serve([int(port) for port in sys.argv[1:]]))

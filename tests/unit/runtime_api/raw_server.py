"""An HTTP server that answers with the bytes a test gives it, and remembers what it was asked."""

import asyncio
import contextlib
from dataclasses import dataclass, field


@dataclass
class Asked:
    """One request as it arrived."""

    head: str
    body: bytes

    @property
    def line(self):
        return self.head.split("\r\n", 1)[0]

    def header(self, name):
        for line in self.head.split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return None


@dataclass
class RawServer:
    """``reply`` is sent as it is and the connection closed; None never answers."""

    reply: bytes | None = b""
    asked: list[Asked] = field(default_factory=list)
    port: int = 0

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # a client that gave up
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            asked = Asked(head, b"")
            asked.body = await reader.readexactly(int(asked.header("content-length") or 0))
            self.asked.append(asked)
            if self.reply is None:
                await reader.read()
            else:
                writer.write(self.reply)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def serving(reply=b""):
    raw = RawServer(reply)
    server = await asyncio.start_server(raw.handle, "127.0.0.1", 0)
    raw.port = server.sockets[0].getsockname()[1]
    async with server:
        yield raw
        server.close()


def http(status, body, headers=""):
    content = body.encode() if isinstance(body, str) else body
    return (
        f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {len(content)}\r\n{headers}\r\n".encode()
        + content
    )

"""The engine's HTTP server, spoken to byte by byte."""

import asyncio

import pytest

from aibrix_operator.sim.engine import http

WAIT_S = 10


@pytest.fixture
async def server():
    """A server with a few odd routes; what happened in them is in ``events``."""
    events = []
    release = asyncio.Event()
    router = http.Router()

    async def echo(request):
        events.append((request.method, request.query_all("q"), request.headers.get("x-a")))
        return http.Response(request.body, content_type="text/plain")

    async def hang(_):
        events.append("started")
        try:
            await release.wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise
        events.append("finished")
        return http.json_response({})

    async def numbers():
        yield b"one"
        await release.wait()
        yield b"two"

    async def stream(_):
        return http.Stream(numbers(), lambda: events.append("closed"))

    router.add("POST", "/echo", echo)
    router.add("GET", "/hang", hang)
    router.add("GET", "/finish", hang, finishes=True)
    router.add("GET", "/stream", stream)
    running = await http.serve(router, "127.0.0.1", 0)
    running.events, running.release = events, release
    yield running
    running.close()


@pytest.fixture
async def client(server):
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    yield reader, writer
    writer.close()


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - the server has no event for what its clients see
            await asyncio.sleep(0)


async def answer(reader):
    """Status, headers and body of an answer that states its length."""
    async with asyncio.timeout(WAIT_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def test_a_connection_serves_request_after_request(client, server):
    reader, writer = client
    for _ in range(2):
        writer.write(b"POST /echo?q=a%20b&p=1&q= HTTP/1.1\r\nX-A: y\r\ncontent-length: 5\r\n\r\nhello")
        assert (await answer(reader))[::2] == (200, b"hello")
    assert server.events == [("POST", ["a b", ""], "y")] * 2


async def test_pipelined_requests_are_answered_in_order(client):
    reader, writer = client
    writer.write(b"".join(b"POST /echo HTTP/1.1\r\ncontent-length: 1\r\n\r\n%d" % n for n in range(5)))
    assert [(await answer(reader))[2] for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_body_may_come_in_pieces_and_in_chunks(client):
    reader, writer = client
    for part in (
        b"POST /echo HTTP/1.1\r\ntransfer-enc",
        b"oding: chunked\r\n\r\n3\r\nab",
        b"c\r\n2\r\nde\r\n0\r\n\r\n",
    ):
        writer.write(part)
        await writer.drain()
    assert (await answer(reader))[2] == b"abcde"


async def test_a_client_that_waits_for_a_go_ahead_gets_it(client):
    reader, writer = client
    writer.write(b"POST /echo HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    async with asyncio.timeout(WAIT_S):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"ok")
    assert (await answer(reader))[2] == b"ok"


async def test_unknown_paths_and_methods_get_the_framework_s_words(client):
    reader, writer = client
    writer.write(b"GET /nowhere HTTP/1.1\r\n\r\n")
    assert (await answer(reader))[::2] == (404, b'{"detail":"Not Found"}')
    writer.write(b"GET /echo HTTP/1.1\r\n\r\n")
    assert (await answer(reader))[::2] == (405, b'{"detail":"Method Not Allowed"}')


async def test_what_is_not_http_is_refused_and_the_connection_closed(client):
    reader, writer = client
    writer.write(b"hello there\r\n\r\n")
    async with asyncio.timeout(WAIT_S):
        assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_a_client_that_asks_for_it_is_hung_up_on(client):
    reader, writer = client
    writer.write(b"POST /echo HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    status, headers, _ = await answer(reader)
    assert (status, headers["connection"]) == (200, "close")
    assert await reader.read() == b""


async def test_a_stream_s_headers_come_before_its_first_chunk_and_chunks_when_they_are_there(client, server):
    reader, writer = client
    writer.write(b"GET /stream HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(WAIT_S):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked\r\ncontent-type: text/event-stream; charset=utf-8" in head
        assert await reader.readexactly(8) == b"3\r\none\r\n"
        assert server.events == []
        server.release.set()
        assert await reader.readuntil(b"0\r\n\r\n") == b"3\r\ntwo\r\n0\r\n\r\n"
    await until(lambda: server.events == ["closed"])


async def test_a_stream_is_closed_when_its_client_leaves(client, server):
    reader, writer = client
    writer.write(b"GET /stream HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(WAIT_S):
        await reader.readuntil(b"one\r\n")
    writer.close()
    await until(lambda: server.events == ["closed"])


@pytest.mark.parametrize(
    ("path", "outcome"),
    [pytest.param(b"/hang", "cancelled", id="cancelled"), pytest.param(b"/finish", "finished", id="not")],
)
async def test_a_handler_is_cancelled_when_its_client_leaves_unless_it_must_finish(client, server, path, outcome):
    _, writer = client
    writer.write(b"GET %b HTTP/1.1\r\n\r\n" % path)
    await until(lambda: server.events == ["started"])
    writer.close()
    await writer.wait_closed()
    if outcome == "finished":
        server.release.set()
    await until(lambda: server.events == ["started", outcome])

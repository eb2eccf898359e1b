"""The server that Envoy asks, over real sockets."""

import asyncio
import contextlib

import orjson
import pytest
import uvloop

from aibrix_operator.gateway import wire
from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.exchange import Forwarded, Refused

FORWARDED = Forwarded(
    upstream=[("target-pod", "10.0.0.1:8000"), ("routing-strategy", "random")],
    client=[("target-pod", "p0"), ("target-pod-ip", "10.0.0.1:8000"), ("routing-strategy", "random")],
)


class Exchange:
    """Answers with what ``reply`` gives, and keeps the questions."""

    def __init__(self, reply=lambda question: FORWARDED):
        self.reply = reply
        self.questions = []

    def answer(self, question):
        self.questions.append(question)
        return self.reply(question)


class Envoy:
    """The asking end of one connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, body=b"", *, path="/v1/chat/completions", headers=()):
        lines = [f"POST {path} HTTP/1.1", "host: gateway", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        self.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    async def read(self):
        """One answer: status, headers, body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:-2])
        return int(head[0].split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))


@contextlib.asynccontextmanager
async def asking(exchange, path, *, limit=1 << 20):
    """A server for ``exchange``, and one connection to it."""
    async with wire.serve(exchange, Address(path=str(path)), body_limit_bytes=limit) as server:
        reader, writer = await asyncio.open_unix_connection(str(path))
        yield server, Envoy(reader, writer)
        writer.close()


async def until(holds):
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - the server has no event for what it holds
            await asyncio.sleep(0)


async def test_a_question_holds_what_the_client_sent_and_only_headers_that_are_read(tmp_path):
    exchange = Exchange()
    async with asking(exchange, tmp_path / "s") as (_, envoy):
        headers = [
            ("user", "ann"),
            ("x-forwarded-for", "10.1.1.1"),
            ("routing-strategy", "a"),
            ("routing-strategy", "b"),
        ]
        envoy.send(b'{"model":"m"}', path="/v1/chat/completions?a=1", headers=headers)
        await envoy.read()
    (question,) = exchange.questions
    assert (question.method, question.path) == ("POST", "/v1/chat/completions?a=1")
    assert question.headers == {"user": "ann", "routing-strategy": "a,b"}
    assert question.body == b'{"model":"m"}'


SIZES = [0, 1, 16_383, 16_384, 16_385, 40_000, 65_536, 220_000, (1 << 20) - 1, 1 << 20, 100, 3 << 20, 20_000, 3 << 20]


async def send_bodies(envoy, bodies, piece):
    """All of them, pipelined, in pieces of ``piece`` bytes; the statuses of the answers."""
    sent = b"".join(f"POST / HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body for body in bodies)

    async def send():
        for start in range(0, len(sent), piece):
            envoy.writer.write(sent[start : start + piece])
            await envoy.writer.drain()

    sending = asyncio.create_task(send())
    statuses = [(await envoy.read())[0] for _ in bodies]
    await sending
    return statuses


def bodies_of(seed):
    """One of each of ``SIZES``, unlike those of another seed."""
    line = bytes((seed + n) % 256 for n in range(251))
    return [(line * (size // 251 + 1))[:size] for size in SIZES]


@pytest.mark.parametrize("piece", [1_000, 16_384, 50_000, 1 << 30])
async def test_bodies_of_every_length_are_whole_however_they_come(tmp_path, piece):
    exchange = Exchange()
    async with asking(exchange, tmp_path / "s", limit=3 << 20) as (_, envoy):
        assert set(await send_bodies(envoy, bodies_of(0), piece)) == {200}
    assert [question.body for question in exchange.questions] == bodies_of(0)


def test_connections_that_share_a_buffer_do_not_mix_their_bodies(tmp_path):
    """On the event loop that the gateway runs on."""

    async def play():
        exchange = Exchange()
        address = Address(path=str(tmp_path / "s"))
        async with wire.serve(exchange, address, body_limit_bytes=3 << 20):
            ends = [Envoy(*await asyncio.open_unix_connection(address.path)) for _ in range(4)]
            await asyncio.gather(*(send_bodies(end, bodies_of(seed), 7_000) for seed, end in enumerate(ends)))
            for end in ends:
                end.writer.close()
        return exchange.questions

    questions = uvloop.run(play())
    assert sorted(bytes(question.body) for question in questions) == sorted(
        b for seed in range(4) for b in bodies_of(seed)
    )


async def test_a_body_in_chunks_is_whole(tmp_path):
    exchange = Exchange()
    async with asking(exchange, tmp_path / "s") as (_, envoy):
        envoy.writer.write(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await envoy.writer.drain()
        envoy.writer.write(b"2\r\nde\r\n0\r\n\r\n")
        assert (await envoy.read())[0] == 200
    assert exchange.questions[0].body == b"abcde"


async def test_two_long_bodies_at_once_do_not_meet(tmp_path):
    exchange = Exchange()
    async with asking(exchange, tmp_path / "s") as (_, envoy):
        other = Envoy(*await asyncio.open_unix_connection(str(tmp_path / "s")))
        for end, letter in ((envoy, b"a"), (other, b"b")):
            end.writer.write(b"POST / HTTP/1.1\r\ncontent-length: 200000\r\n\r\n" + letter * 100_000)
            await end.writer.drain()
        for end, letter in ((other, b"b"), (envoy, b"a")):
            end.writer.write(letter * 100_000)
            assert (await end.read())[0] == 200
        other.writer.close()
    assert [question.body for question in exchange.questions] == [b"b" * 200_000, b"a" * 200_000]


async def test_a_long_body_is_read_in_few_pieces(tmp_path, monkeypatch):
    """Small ones cost the loop far more."""
    pieces = []
    updated = wire._Connection.buffer_updated
    monkeypatch.setattr(
        wire._Connection, "buffer_updated", lambda self, size: (pieces.append(size), updated(self, size))[1]
    )
    async with asking(Exchange(), tmp_path / "s") as (_, envoy):
        assert await send_bodies(envoy, [b"a" * 220_000], 1 << 30) == [200]
    assert max(pieces) > 16_384


async def test_a_body_that_was_read_makes_room_for_the_next(tmp_path):
    """And one that was not is left alone."""
    exchange = Exchange()
    async with asking(exchange, tmp_path / "s") as (_, envoy):
        for letter in (b"a", b"b", b"c"):
            assert await send_bodies(envoy, [letter * 100_000], 1 << 30) == [200]
            if letter == b"b":
                exchange.questions[-1].let_go()
    first, second, third = (question.body for question in exchange.questions)
    assert (first, second, third) == (b"a" * 100_000, b"c" * 100_000, b"c" * 100_000)
    assert second.obj is third.obj


async def test_both_ends_get_their_own_target_pod_and_one_copy_of_what_they_share(tmp_path):
    async with asking(Exchange(), tmp_path / "s") as (_, envoy):
        envoy.send()
        status, headers, body = await envoy.read()
    assert (status, body) == (200, b"")
    assert headers == {
        "content-length": "0",
        "target-pod": "10.0.0.1:8000",
        "routing-strategy": "random",
        wire.CLIENT_POD: "p0",
        "target-pod-ip": "10.0.0.1:8000",
    }


@pytest.mark.parametrize(
    ("status", "on_wire"), [(400, 400), (429, 429), (500, 460), (501, 461), (503, 463), (504, 464)]
)
async def test_a_refusal_keeps_its_body_and_headers_and_hides_a_5xx_from_ext_authz(tmp_path, status, on_wire):
    exchange = Exchange(lambda _: Refused(status, [("retry-after", "10")], b"because"))
    async with asking(exchange, tmp_path / "s") as (_, envoy):
        envoy.send()
        assert await envoy.read() == (on_wire, {"content-length": "7", "retry-after": "10"}, b"because")


async def test_an_answer_that_comes_later_holds_up_no_other_connection(tmp_path):
    wake = asyncio.Event()

    async def later():
        await wake.wait()
        return FORWARDED

    exchange = Exchange(lambda question: later() if question.body == b"wait" else FORWARDED)
    async with asking(exchange, tmp_path / "s") as (server, envoy):
        envoy.send(b"wait")
        await until(lambda: server.waiting == 1)
        other = Envoy(*await asyncio.open_unix_connection(str(tmp_path / "s")))
        other.send()
        assert (await other.read())[0] == 200
        wake.set()
        assert (await envoy.read())[0] == 200
        assert server.waiting == 0
        other.writer.close()


async def test_pipelined_questions_are_answered_in_their_order(tmp_path):
    wake = asyncio.Event()

    async def later(text):
        await wake.wait()
        return Refused(400, [], text)

    def reply(question):
        return later(question.body) if question.body == b"first" else Refused(400, [], question.body)

    exchange = Exchange(reply)
    async with asking(exchange, tmp_path / "s", limit=6) as (server, envoy):
        for body in (b"first", b"second", b"too long", b"third"):
            envoy.send(body)
        await until(lambda: server.waiting == 1)
        wake.set()
        answers = [await envoy.read() for _ in range(4)]
    assert [answer[0] for answer in answers] == [400, 400, 413, 400]
    assert [answer[2] for answer in answers if answer[0] == 400] == [b"first", b"second", b"third"]


async def test_a_question_whose_client_has_gone_stops_waiting(tmp_path):
    ended = asyncio.Event()

    async def for_ever():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asking(Exchange(lambda _: for_ever()), tmp_path / "s") as (server, envoy):
        envoy.send()
        await until(lambda: server.waiting == 1)
        envoy.writer.close()
        async with asyncio.timeout(5):
            await ended.wait()
        await until(lambda: server.waiting == 0)


async def test_a_body_over_the_limit_is_413_in_openais_shape_and_the_next_question_is_heard(tmp_path):
    exchange = Exchange()
    async with asking(exchange, tmp_path / "s", limit=10) as (_, envoy):
        envoy.send(b"x" * 11)
        status, headers, body = await envoy.read()
        assert (status, headers["content-type"]) == (413, "application/json")
        assert orjson.loads(body)["error"] == {
            "message": "the request body is larger than 10 bytes",
            "type": "invalid_request_error",
            "code": None,
            "param": None,
        }
        envoy.send(b"x" * 10)
        assert (await envoy.read())[0] == 200
    assert [len(question.body) for question in exchange.questions] == [10]


async def raises_later():
    raise RuntimeError("a fault")


def raises(_):
    raise RuntimeError("a fault")


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(raises, id="raises"),
        pytest.param(lambda _: raises_later(), id="raises later"),
        pytest.param(lambda _: Forwarded([("a", "b\r\nevil: 1")], []), id="a header with a line break"),
        pytest.param(lambda _: Refused(400, [("a", "b\nevil: 1")], b""), id="a refusal's header with a line break"),
        pytest.param(lambda _: Forwarded([("a", "\u20ac")], []), id="a header outside latin-1"),
    ],
)
async def test_a_fault_of_the_exchange_is_a_500_in_openais_shape(tmp_path, reply):
    async with asking(Exchange(reply), tmp_path / "s") as (_, envoy):
        envoy.send()
        status, headers, body = await envoy.read()
    assert (status, headers["content-type"]) == (wire.STATUS_ON_WIRE[500], "application/json")
    assert orjson.loads(body)["error"]["type"] == "api_error"


async def test_a_stopping_server_refuses_new_questions_and_answers_those_that_wait(tmp_path):
    wake = asyncio.Event()

    async def later():
        await wake.wait()
        return FORWARDED

    exchange = Exchange(lambda _: later())
    async with asking(exchange, tmp_path / "s") as (server, envoy):
        envoy.send()
        await until(lambda: server.waiting == 1)
        server.stop_asking()
        other = Envoy(*await asyncio.open_unix_connection(str(tmp_path / "s")))
        other.send()
        status, headers, _ = await other.read()
        assert (status, headers["retry-after"]) == (wire.STATUS_ON_WIRE[503], "1")
        wake.set()
        assert (await envoy.read())[0] == 200
        other.writer.close()


async def test_what_still_waits_when_the_server_closes_is_refused(tmp_path):
    async def for_ever():
        await asyncio.Event().wait()

    address = Address(path=str(tmp_path / "s"))
    async with wire.serve(Exchange(lambda _: for_ever()), address, body_limit_bytes=10) as server:
        envoy = Envoy(*await asyncio.open_unix_connection(address.path))
        envoy.send()
        await until(lambda: server.waiting == 1)
    assert (await envoy.read())[0] == wire.STATUS_ON_WIRE[503]
    envoy.writer.close()


async def test_bytes_that_are_no_http_end_the_connection(tmp_path):
    async with asking(Exchange(), tmp_path / "s") as (_, envoy):
        envoy.writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await envoy.read()

"""What a real Envoy does with too much, too many and too slow."""

import asyncio
import json
import os
import time

import aiohttp
import pytest
from gateway_engine import EVENTS, Reply, json_reply, running_engine, stream_reply
from gateway_envoy import forward, stage, until

CHAT = "/v1/chat/completions"
KIB = 1 << 10
EVENT = b'data: {"model":"m"}\n\n'


def error_of(answer, body):
    assert answer.headers["content-type"] == "application/json"
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "code", "param"}
    return error


def pieces(total, size=64 * KIB):
    """A body whose length is not told."""

    async def generate():
        for start in range(0, total, size):
            yield b"x" * min(size, total - start)

    return generate()


@pytest.mark.acceptance("GW-20")
async def test_a_body_over_the_limit_is_413_and_no_engine_hears_of_it():
    limits = {"body_limit_bytes": 100 * KIB, "media_body_limit_bytes": 500 * KIB}
    async with (
        running_engine() as engine,
        stage(lambda _: forward(engine.address), **limits) as gateway,
    ):
        engine.reply = lambda _: json_reply({"model": "m"})
        for path, size, length_told, status in (
            (CHAT, 100 * KIB, True, 200),
            (CHAT, 100 * KIB, False, 200),
            (CHAT, 100 * KIB + 1, True, 413),
            (CHAT, 400 * KIB, False, 413),
            ("/v1/audio/transcriptions", 500 * KIB, True, 200),
            ("/v1/audio/transcriptions", 500 * KIB, False, 200),
            ("/v1/images/generations", 500 * KIB + 1, True, 413),
            ("/v1/images/generations", 900 * KIB, False, 413),
        ):
            asked = len(gateway.exchange.questions)
            data = b"x" * size if length_told else pieces(size)
            async with gateway.client.post(gateway.url + path, data=data) as answer:
                body = await answer.read()
            assert answer.status == status, (path, size, length_told)
            if status == 413:
                assert error_of(answer, body)["type"] == "invalid_request_error"
                assert len(gateway.exchange.questions) == asked
            else:
                assert len(engine.seen[-1].body) == size


@pytest.mark.acceptance("GW-20")
async def test_a_body_known_to_be_too_long_is_refused_before_it_is_sent():
    async with stage(lambda _: forward("127.0.0.1:1"), body_limit_bytes=KIB) as gateway:
        address = gateway.gateway.settings.listen
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: g\r\ncontent-length: {1 << 40}\r\n\r\n".encode())
        async with asyncio.timeout(20):
            assert (await reader.readline()).split()[1] == b"413"
        writer.close()


class Http2:
    """One stream of HTTP/2, frame by frame: clients hide what the end of an early answer looks like."""

    DATA, HEADERS, RESET, SETTINGS = 0, 1, 3, 4
    END_STREAM, END_HEADERS = 1, 4

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, kind, flags, stream, payload=b""):
        head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
        self.writer.write(head + payload)

    def ask(self, **headers):
        named = {":method": "POST", ":scheme": "http", ":path": CHAT, ":authority": "g", **headers}
        texts = [(name.encode(), value.encode()) for name, value in named.items()]
        self.writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.send(self.SETTINGS, 0, 0)
        block = b"".join(b"\0" + bytes((len(n),)) + n + bytes((len(v),)) + v for n, v in texts)
        self.send(self.HEADERS, self.END_HEADERS, 1, block)

    async def answer(self):
        """(kind, flags, payload) of the stream's frames, until it is reset."""
        frames = []
        while not frames or frames[-1][0] != self.RESET:
            head = await self.reader.readexactly(9)
            payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
            if int.from_bytes(head[5:], "big") == 1 and head[3] in (self.DATA, self.HEADERS, self.RESET):
                frames.append((head[3], head[4], payload))
        return frames


@pytest.mark.acceptance("GW-20")
@pytest.mark.parametrize("length", [{"content-length": str(1 << 30)}, {}], ids=["told", "not told"])
async def test_over_http2_the_whole_413_comes_before_the_stream_ends_without_an_error(length):
    """As RFC 9113, 8.1 wants an early answer; a client that then speaks of a stream error has not read it."""
    async with stage(lambda _: forward("127.0.0.1:1"), body_limit_bytes=KIB) as gateway:
        address = gateway.gateway.settings.listen
        client = Http2(*await asyncio.open_connection(address.host, address.port))
        client.ask(**length)
        client.send(client.DATA, 0, 1, b"x" * 2 * KIB)
        async with asyncio.timeout(20):
            (first, *_), (data, flags, body), (last, _, code) = await client.answer()
        assert (first, data, last) == (client.HEADERS, client.DATA, client.RESET)
        assert flags & client.END_STREAM
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
        assert int.from_bytes(code, "big") == 0
        client.writer.close()


@pytest.mark.acceptance("GW-21")
async def test_a_thousand_slow_requests_at_once_are_all_answered():
    async with running_engine() as engine, stage(lambda _: forward(engine.address)) as gateway:
        answer_now = asyncio.Event()
        engine.reply = lambda _: Reply(chunks=(b'{"model":"m"}',), before=answer_now)
        body = json.dumps({"model": "m", "x": "y" * 4 * KIB})

        async def ask():
            async with gateway.client.post(gateway.url + CHAT, data=body) as answer:
                return answer.status, await answer.read()

        asked = [asyncio.create_task(ask()) for _ in range(1000)]
        await until(lambda: engine.running == 1000, within_s=60.0)
        answer_now.set()
        assert set(await asyncio.gather(*asked)) == {(200, b'{"model":"m"}')}
        await until(lambda: len(gateway.exchange.ended()) == 1000)
        assert len({entry.lease for entry in gateway.exchange.ended()}) == 1000
        assert await gateway.gateway.admin.active_requests() == 0
        assert await gateway.gateway.admin.lost_entries() == 0


@pytest.mark.acceptance("GW-21")
async def test_a_thousand_requests_wait_for_their_decision_at_once():
    wake = asyncio.Event()

    async with running_engine() as engine:

        async def later():
            await wake.wait()
            return forward(engine.address)

        async with stage(lambda _: later()) as gateway:

            async def ask():
                async with gateway.client.post(gateway.url + CHAT, json={"model": "m"}) as answer:
                    return answer.status

            asked = [asyncio.create_task(ask()) for _ in range(1000)]
            await until(lambda: gateway.gateway.questions.waiting == 1000, within_s=60.0)
            wake.set()
            assert set(await asyncio.gather(*asked)) == {200}


async def test_what_moves_may_last_and_what_stands_still_is_ended():
    async with running_engine() as engine, stage(lambda _: forward(engine.address), timeout_s=2.0) as gateway:
        url = gateway.url + CHAT
        engine.reply = lambda _: stream_reply(*[EVENT] * 12, pause_s=0.2)
        began = time.monotonic()
        async with gateway.client.post(url, json={}) as answer:
            assert await answer.read() == EVENT * 12
        assert time.monotonic() - began > 2.0

        engine.reply = lambda _: Reply(before=asyncio.Event())
        async with gateway.client.post(url, json={}) as answer:
            assert (answer.status, error_of(answer, await answer.read())["type"]) == (504, "api_error")

        engine.reply = lambda _: stream_reply(EVENT, EVENT, after_first=asyncio.Event())
        with pytest.raises(aiohttp.ClientPayloadError):
            async with gateway.client.post(url, json={}) as answer:
                await answer.read()
        await until(lambda: engine.running == 0)


async def test_a_decision_that_never_comes_is_an_error_in_time():
    gone = []

    async def never():
        try:
            await asyncio.Event().wait()
        finally:
            gone.append(True)

    async with stage(lambda _: never(), timeout_s=1.0) as gateway:
        async with gateway.client.post(gateway.url + CHAT, json={}) as answer:
            body = await answer.read()
        assert answer.status in (503, 504)
        error_of(answer, body)
        await until(lambda: gone)


async def test_without_us_envoy_answers_503_in_openais_shape():
    async with stage(lambda _: forward("127.0.0.1:1")) as gateway:
        os.unlink(gateway.gateway.settings.questions.path)
        async with gateway.client.post(gateway.url + CHAT, json={}) as answer:
            error = error_of(answer, await answer.read())
        assert (answer.status, error["code"]) == (503, "service_unavailable")
        assert error["message"] == "the gateway cannot decide about requests now"


async def test_an_upgrade_is_refused_in_openais_shape():
    async with running_engine() as engine, stage(lambda _: forward(engine.address)) as gateway:
        upgrade = {
            "connection": "upgrade",
            "upgrade": "websocket",
            "sec-websocket-key": "x",
            "target-pod": engine.address,
        }
        for method, path in (("GET", "/v1/realtime"), ("GET", CHAT), ("POST", CHAT)):
            async with gateway.client.request(method, gateway.url + path, headers=upgrade) as answer:
                error_of(answer, await answer.read())
            assert 400 <= answer.status < 500
        assert (engine.seen, gateway.exchange.questions) == ([], [])


async def test_headers_too_long_are_refused_in_openais_shape():
    async with stage(lambda _: forward("127.0.0.1:1")) as gateway:
        async with gateway.client.post(gateway.url + CHAT, json={}, headers={"user": "x" * 100 * KIB}) as answer:
            error_of(answer, await answer.read())
        assert answer.status == 431


async def test_a_running_request_renews_its_lease():
    finish = asyncio.Event()
    async with (
        running_engine() as engine,
        stage(lambda _: forward(engine.address, lease="long"), renew_interval_s=0.05) as gateway,
    ):
        engine.reply = lambda _: stream_reply(EVENT, EVENT, after_first=finish)
        async with gateway.client.post(gateway.url + CHAT, json={}) as answer:
            await until(lambda: gateway.exchange.renewed("long") >= 3)
            assert gateway.exchange.ended("long") == []
            finish.set()
            assert await answer.read() == EVENT * 2
        assert (await gateway.ended("long")).status == 200


@pytest.mark.acceptance("GW-117")
async def test_a_client_that_leaves_is_told_once_with_what_it_had():
    async with running_engine() as engine, stage(lambda _: forward(engine.address, lease="gone")) as gateway:
        before = asyncio.Event()
        for reply, status in (
            (lambda: Reply(headers=(EVENTS,), chunks=(EVENT, EVENT), after_first=asyncio.Event()), 200),
            (lambda: Reply(before=before), 0),
        ):
            gateway.exchange.entries.clear()
            engine.seen.clear()
            engine.reply = lambda _, reply=reply: reply()
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.settings.listen.port)
            writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n\r\n{{}}".encode())
            await until(lambda: engine.seen)
            if status:
                await reader.readuntil(EVENT)
            writer.close()
            ended = await gateway.ended("gone")
            assert (ended.status, "DC" in ended.flags) == (status, True)
            assert (ended.first_byte_s is not None) == bool(status)
            await until(lambda: engine.running == 0)
        assert engine.cut == 2
        assert len(gateway.exchange.ended("gone")) == 1


@pytest.mark.acceptance("GW-117")
async def test_nobody_waits_for_a_decision_about_a_client_that_has_left():
    cancelled = []

    async def never():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async with stage(lambda _: never()) as gateway:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.gateway.settings.listen.port)
        writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        await until(lambda: gateway.gateway.questions.waiting == 1)
        writer.close()
        await until(lambda: cancelled and gateway.gateway.questions.waiting == 0)


async def test_an_engine_that_closes_idle_connections_early_fails_nobody():
    """uvicorn closes after 5 s; Envoy lets go of a connection before that."""
    async with running_engine() as engine, stage(lambda _: forward(engine.address), engine_idle_s=0.2) as gateway:
        engine.reply = lambda _: json_reply({"model": "m"})
        for _ in range(2):
            async with gateway.client.post(gateway.url + CHAT, json={}) as answer:
                assert answer.status == 200
            await until(lambda: not engine.connections)


@pytest.mark.acceptance("GW-25")
async def test_a_stopping_gateway_refuses_what_is_new_and_finishes_what_runs():
    finish = asyncio.Event()
    async with running_engine() as engine, stage(lambda _: forward(engine.address)) as gateway:
        engine.reply = lambda _: stream_reply(EVENT, EVENT, after_first=finish)
        running = await gateway.client.post(gateway.url + CHAT, json={})
        assert await running.content.readexactly(len(EVENT)) == EVENT
        draining = asyncio.create_task(gateway.gateway.drain(10.0))
        await until(lambda: gateway.gateway.questions.is_stopping)
        async with gateway.client.post(gateway.url + CHAT, json={}) as answer:
            error = error_of(answer, await answer.read())
        assert (answer.status, error["code"], answer.headers["retry-after"]) == (503, "service_unavailable", "1")
        assert not draining.done()
        finish.set()
        assert await running.read() == EVENT
        await draining
        assert [entry.status for entry in gateway.exchange.ended()] == [503, 200]


@pytest.mark.acceptance("GW-25")
async def test_what_waits_for_its_decision_when_the_time_to_stop_is_over_is_refused():
    async def never():
        await asyncio.Event().wait()

    async with stage(lambda _: never()) as gateway:
        asked = asyncio.create_task(gateway.client.post(gateway.url + CHAT, json={}))
        await until(lambda: gateway.gateway.questions.waiting == 1)
        await gateway.gateway.drain(0.2)
        answer = await asked
        assert (answer.status, error_of(answer, await answer.read())["code"]) == (503, "service_unavailable")

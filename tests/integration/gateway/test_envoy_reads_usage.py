"""Tokens of an answer, as a real Envoy reads them from what passes through it, and tells them in its log."""

import asyncio
import json

import pytest
from gateway_engine import EVENTS, Reply, event, json_reply, stream_reply
from gateway_envoy import forward

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPENAI = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
DONE = b"data: [DONE]\n\n"


def chunk(content, **more):
    choices = [{"index": 0, "delta": {"content": content}}]
    return event({"object": "chat.completion.chunk", "model": "m", "choices": choices, **more})


def named(name, document, end="\n"):
    """An event of Anthropic's and of the responses API, which carry names."""
    return f"event: {name}{end}".encode() + event(document, end=end)


LAST = event({"object": "chat.completion.chunk", "model": "m", "choices": [], "usage": OPENAI})
STREAM = chunk("a") + chunk('say "usage": {"total_tokens": 99}') + LAST + DONE
ANTHROPIC = (
    named("message_start", {"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}})
    + named("content_block_delta", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}})
    + named("message_delta", {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5}})
    + named("message_stop", {"type": "message_stop"})
)


async def played(gateway, engine, reply, path="/v1/chat/completions"):
    """The request's end as the log told it, the answer's status, and the answer."""
    engine.reply = lambda _: reply
    answer = forward(engine.address)
    gateway.exchange.reply = lambda _: answer
    async with gateway.client.post(gateway.url + path, json={"model": "m"}) as response:
        body = await response.read()
    lease = dict(answer.upstream)["x-aibrix-lease"]
    return await gateway.ended(lease), response.status, body


@pytest.mark.parametrize(
    ("path", "usage", "total"),
    [
        ("/v1/chat/completions", OPENAI, 10),
        ("/v1/completions", OPENAI, 10),
        ("/v1/chat/completions", {"total_tokens": 0}, 0),
        ("/v1/chat/completions", {"prompt_tokens": 0, "completion_tokens": 4}, 4),
        ("/v1/responses", {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}, 15),
        ("/v1/messages", {"input_tokens": 10, "output_tokens": 5}, 15),
        (
            "/v1/messages",
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "cache_creation_input_tokens": 2,
                "cache_read_input_tokens": 4,
            },
            21,
        ),
        ("/v1/audio/transcriptions", {"type": "tokens", "input_tokens": 8, "output_tokens": 2, "total_tokens": 10}, 10),
        ("/v1/audio/transcriptions", {"type": "duration", "seconds": 3}, None),
        ("/v1/chat/completions", None, None),
    ],
)
@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])
@pytest.mark.acceptance("GW-116")
async def test_the_tokens_of_a_whole_answer_are_told(gateway, engine, path, usage, total, content_type):
    reply = json_reply({"model": "m", "usage": usage}, content_type=content_type)
    ended, status, _ = await played(gateway, engine, reply, path)
    assert (status, ended.total()) == (200, total)


@pytest.mark.acceptance("GW-114")
async def test_a_stream_cut_anywhere_tells_the_tokens_of_the_whole_one(gateway, engine):
    def cut_where_asked(seen):
        cut = seen.json()["cut"]
        return stream_reply(STREAM[:cut], STREAM[cut:], pause_s=0.002)

    async def ask(cut):
        body = {"model": "m", "cut": cut}
        async with gateway.client.post(f"{gateway.url}/v1/chat/completions", json=body) as response:
            return response.status, await response.read()

    engine.reply = cut_where_asked
    gateway.exchange.reply = lambda question: forward(engine.address, lease=f"cut {json.loads(question.body)['cut']}")
    cuts = range(1, len(STREAM))
    for some in (cuts[start : start + 50] for start in range(0, len(cuts), 50)):
        assert set(await asyncio.gather(*map(ask, some))) == {(200, STREAM)}
    told = {cut: (await gateway.ended(f"cut {cut}")).total_tokens for cut in cuts}
    assert told == dict.fromkeys(cuts, 10)


@pytest.mark.acceptance("GW-114")
@pytest.mark.parametrize(
    ("stream", "total"),
    [
        pytest.param([bytes([byte]) for byte in STREAM], 10, id="byte by byte"),
        pytest.param([STREAM.replace(b"\n", b"\r\n")], 10, id="CRLF"),
        pytest.param([STREAM.replace(b"data: ", b"data:")], 10, id="no blank behind data:"),
        pytest.param([b": comment\n\n" + STREAM], 10, id="comments"),
        pytest.param([chunk("a") + LAST], 10, id="no [DONE]"),
        pytest.param([chunk("a" * 20_000) + STREAM], 10, id="a long event before it"),
        pytest.param([b"data: " + b"x" * (2 << 20) + b"\n\n" + STREAM], 10, id="2 MiB that is no JSON before it"),
        pytest.param([chunk("a" * (2 << 20), usage=OPENAI) + chunk("b")], 10, id="behind 2 MiB in one event"),
        pytest.param([chunk("a"), b"data: {broken\n\n", LAST, DONE], 10, id="a broken event"),
        pytest.param([LAST + chunk("b", usage=None) + DONE], 10, id="a null after it"),
        pytest.param([chunk('"usage":{"total_tokens":5}') + DONE], None, id="the word in a text"),
        pytest.param([chunk("a") + DONE], None, id="no usage"),
        pytest.param([(chunk("a") + LAST)[:-1]], 10, id="the last event is not ended"),
        pytest.param([(chunk("a") + LAST).rstrip()], 10, id="the last line is not ended"),
        pytest.param([(chunk("a") + LAST)[:-10]], None, id="cut within the usage"),
        pytest.param([chunk("a", usage="none") + chunk("b", usage=[1]) + DONE], None, id="usage that is no object"),
        pytest.param([event({"usage": {**OPENAI, "details": {"x": ["y" * 3000]}}}) + DONE], None, id="3 KB of details"),
        pytest.param([event({"usage": None, "response": {"usage": OPENAI}}) + DONE], 10, id="a null before it"),
    ],
)
async def test_odd_streams_pass_whole_and_tell_what_they_can(gateway, engine, stream, total):
    ended, status, body = await played(gateway, engine, stream_reply(*stream))
    assert (status, body, ended.total()) == (200, b"".join(stream), total)


@pytest.mark.acceptance("GW-115")
async def test_of_usage_in_every_event_the_last_counts(gateway, engine):
    events = [
        chunk("a", usage={"prompt_tokens": 30, "completion_tokens": n, "total_tokens": 30 + n}) for n in range(1, 51)
    ]
    ended, _, _ = await played(gateway, engine, stream_reply(*events, DONE))
    assert (ended.prompt_tokens, ended.completion_tokens, ended.total()) == (30, 50, 80)


@pytest.mark.acceptance("GW-116")
async def test_anthropics_stream_is_added_up(gateway, engine):
    for stream in (ANTHROPIC, ANTHROPIC.replace(b"\n", b"\r\n")):
        ended, _, body = await played(gateway, engine, stream_reply(stream), "/v1/messages")
        assert (body, ended.prompt_tokens, ended.completion_tokens, ended.total()) == (stream, 10, 5, 15)


@pytest.mark.acceptance("GW-116")
async def test_the_stream_of_a_response_tells_its_usage_at_its_end(gateway, engine):
    usage = {"input_tokens": 20, "output_tokens": 2, "total_tokens": 22}
    text = "word " * 40_000  # the last event repeats the whole answer
    last = {"type": "response.completed", "response": {"output": text, "usage": usage}}
    stream = named("response.created", {"type": "response.created", "response": {"usage": None}})
    stream += named("response.completed", last)
    ended, _, body = await played(gateway, engine, stream_reply(stream), "/v1/responses")
    assert (body, ended.total()) == (stream, 22)


async def test_long_answers_of_apis_without_usage_are_not_held_back(gateway, engine):
    body = json.dumps({"model": "m", "data": [0.125] * 2_000_000}).encode()
    assert len(body) > gateway.gateway.settings.body_limit_bytes
    ended, status, got = await played(gateway, engine, Reply(chunks=(body,)), "/v1/embeddings")
    assert (status, got == body, ended.total()) == (200, True, None)


async def test_an_answer_too_long_to_look_into_is_an_error_in_openais_shape(gateway, engine):
    body = json.dumps({"model": "m", "data": [0.125] * 2_000_000}).encode()
    _, status, got = await played(gateway, engine, Reply(chunks=(body,)))
    assert status == 500
    assert set(json.loads(got)["error"]) == {"message", "type", "code", "param"}


async def test_the_first_byte_is_that_of_the_body(gateway, engine):
    reply = Reply(headers=(EVENTS,), chunks=(b"", LAST, DONE), delay_s=0.05)
    ended, _, _ = await played(gateway, engine, reply)
    assert 0.05 <= ended.first_byte_s <= ended.duration_s

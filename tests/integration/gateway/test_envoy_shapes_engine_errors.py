"""Engines' errors through a real Envoy: in OpenAI's shape, with their status; and successes untouched."""

import json
import os

import pytest
from gateway_engine import EVENTS, JSON, Reply, json_reply, running_engine, stream_reply
from gateway_envoy import forward, stage

pytestmark = pytest.mark.asyncio(loop_scope="module")
PLAIN = ("content-type", "text/plain")


@pytest.fixture
def ask(gateway, engine):
    async def ask(reply, path="/v1/chat/completions"):
        engine.reply = lambda _: reply
        async with gateway.client.post(gateway.url + path, json={"model": "m"}) as answer:
            return answer.status, answer.headers, await answer.read()

    return ask


@pytest.mark.acceptance("GW-111")
@pytest.mark.parametrize(
    ("reply", "status", "error"),
    [
        pytest.param(
            json_reply({"error": {"message": "bad", "type": "T", "param": "n", "code": 40001}}, status=400),
            400,
            {"message": "bad", "type": "T", "param": "n", "code": 40001},
            id="nested",
        ),
        pytest.param(
            json_reply({"object": "error", "message": "gone", "type": "T", "code": 404}, status=404),
            404,
            {"message": "gone", "type": "T", "param": None, "code": 404},
            id="flat",
        ),
        pytest.param(
            Reply(503, (PLAIN,), (b"over", b"loaded", b" now")),
            503,
            {"message": "overloaded now", "type": None, "param": None, "code": None},
            id="plain text in three chunks",
        ),
        pytest.param(
            Reply(429, (JSON,), (b'{"error":{"mess', b'age":"slow', b' down"}}'), pause_s=0.01),
            429,
            {"message": "slow down", "type": None, "param": None, "code": None},
            id="JSON in three chunks",
        ),
        pytest.param(
            Reply(500, (PLAIN,), (b"trace",)),
            500,
            {"message": "Internal server error", "type": "api_error", "param": None, "code": None},
            id="500",
        ),
        pytest.param(
            Reply(404, (), (b"",)),
            404,
            {"message": "unknown response", "type": None, "param": None, "code": None},
            id="no body",
        ),
        pytest.param(
            Reply(400, (EVENTS,), (b"data: {}\n\n", b"")),
            400,
            {"message": "data: {}\n\n", "type": None, "param": None, "code": None},
            id="a stream of events",
        ),
    ],
)
async def test_an_engines_error_keeps_its_status_and_has_four_members(ask, gateway, reply, status, error):
    got, told, body = await ask(reply)
    assert (got, json.loads(body)["error"]) == (status, error)
    assert told.getall("content-type") == ["application/json"]
    assert told.get("content-length", str(len(body))) == str(len(body))
    assert told.get("x-error-response-unknown") == (None if status == 500 else "true")
    assert told["target-pod"] == "pod-0"


@pytest.mark.acceptance("GW-111")
async def test_an_engine_that_refuses_its_key_is_told_with_the_pod(ask):
    status, told, body = await ask(Reply(401, (PLAIN,), (b"who?",)))
    assert (status, told["target-pod"]) == (401, "pod-0")
    assert json.loads(body)["error"]["code"] == "invalid_api_key"


@pytest.mark.acceptance("GW-112")
@pytest.mark.parametrize("status", [200, 201, 202, 204, 206])
async def test_every_2xx_is_a_success_and_is_not_touched(ask, gateway, status):
    before = gateway.gateway.reports.shaper.shaped
    sent = b"" if status == 204 else b'{"model":"m","id":"x"}'
    got, told, body = await ask(Reply(status, (JSON, ("x-engine", "1")), (sent,)))
    assert (got, body, told["x-engine"]) == (status, sent, "1")
    assert gateway.gateway.reports.shaper.shaped == before


@pytest.mark.acceptance("GW-113")
@pytest.mark.parametrize(
    ("reply", "status", "header"),
    [
        pytest.param(json_reply({"code": 422, "message": "x"}), 422, "x-error-response-unknown", id="code"),
        pytest.param(json_reply({"message": "x"}), 500, "x-error-response-unknown", id="no code"),
        pytest.param(Reply(200, (JSON,), (b"oops",)), 500, "x-error-response-unmarshal", id="no JSON"),
        pytest.param(Reply(200, (PLAIN,), (b"oops",)), 500, "x-error-response-unmarshal", id="plain text"),
        pytest.param(Reply(200, (), (b"oops", b"!")), 500, "x-error-response-unmarshal", id="no type"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/completions", "/v1/responses"])
async def test_a_failure_that_passes_for_a_200_is_told_as_one(ask, reply, status, header, path):
    got, told, body = await ask(reply, path)
    assert (got, told[header]) == (status, "true")
    assert set(json.loads(body)["error"]) == {"message", "type", "code", "param"}


@pytest.mark.parametrize("path", ["/tokenize", "/v1/images/generations", "/v1/audio/transcriptions", "/v1/score"])
async def test_apis_whose_answers_name_no_model_pass(ask, path):
    got, _, body = await ask(json_reply({"count": 3}), path)
    assert (got, body) == (200, b'{"count":3}')


async def test_a_stream_is_not_looked_at(ask, gateway):
    before = gateway.gateway.reports.shaper.shaped
    got, _, body = await ask(stream_reply(b"data: no JSON at all\n\n"))
    assert (got, body) == (200, b"data: no JSON at all\n\n")
    assert gateway.gateway.reports.shaper.shaped == before


async def test_without_us_an_engines_error_passes_as_it_is():
    async with running_engine() as engine, stage(lambda _: forward(engine.address)) as gateway:
        engine.reply = lambda _: Reply(418, (PLAIN,), (b"a teapot",))
        os.unlink(gateway.gateway.settings.reports.path)
        async with gateway.client.post(f"{gateway.url}/v1/chat/completions", json={"model": "m"}) as answer:
            assert (answer.status, await answer.read()) == (418, b"a teapot")

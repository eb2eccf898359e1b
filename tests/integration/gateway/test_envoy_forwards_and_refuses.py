"""A real Envoy with our configuration: what reaches engines and clients, and what cannot."""

import io
import json

import pytest
from aiohttp import web
from gateway_engine import Reply
from gateway_envoy import forward
from hypothesis import given, settings
from hypothesis import strategies as st

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.exchange import Refused
from aibrix_operator.gateway.request import Api

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT = "/v1/chat/completions"
MEMBERS = {"message", "type", "code", "param"}


async def ask(gateway, path=CHAT, *, method="POST", **more):
    """Status, headers and body of the answer."""
    async with gateway.client.request(method, gateway.url + path, **more) as answer:
        return answer.status, answer.headers, await answer.read()


def error_of(answer):
    """The error of an answer, which is in OpenAI's shape."""
    _, told, body = answer
    assert told["content-type"] == "application/json"
    error = json.loads(body)["error"]
    assert set(error) == MEMBERS
    return error


@pytest.mark.acceptance("GW-1")
async def test_engine_and_client_are_told_where_the_request_went(gateway, engine):
    status, told, _ = await ask(gateway, json={"model": "m"})
    (seen,) = engine.seen
    assert status == 200
    assert seen.header("target-pod") == engine.address
    assert seen.header("x-went-into-req-headers") == "true"
    assert seen.header("x-request-id") == "r-1"
    assert seen.header("accept-encoding") is None  # or usage could not be read from the answer
    assert told.getall("target-pod") == ["pod-0"]
    assert told.getall("target-pod-ip") == [engine.address]
    assert told.getall("routing-strategy") == ["random"]
    assert told.getall("request-id") == ["r-1"]
    assert headers.LEASE not in told


@pytest.mark.acceptance("GW-11")
async def test_a_query_goes_on_to_the_engine_also_behind_another_path(gateway, engine):
    await ask(gateway, f"{CHAT}?api-version=1&x=%20y", json={"model": "m"})
    reply = forward(engine.address, upstream=[(headers.REWRITE_PATH, "/generate")])
    gateway.exchange.reply = lambda _: reply
    await ask(gateway, "/v1/images/generations?a=1", json={"model": "m"})
    assert [seen.path for seen in engine.seen] == [f"{CHAT}?api-version=1&x=%20y", "/generate?a=1"]
    assert gateway.exchange.questions[0].path == f"{CHAT}?api-version=1&x=%20y"


@pytest.mark.acceptance("GW-14")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 501, 503])
async def test_a_refusal_reaches_the_client_as_it_was_made(gateway, engine, status):
    body = b'{"error":{"message":"no","type":"t","code":null,"param":null}}'
    told = [("content-type", "application/json"), ("retry-after", "20"), ("x-error-routing", "true")]
    gateway.exchange.reply = lambda _: Refused(status, told, body)
    answer = await ask(gateway, json={"model": "m"})
    assert (answer[0], answer[2]) == (status, body)
    assert error_of(answer)["message"] == "no"
    assert (answer[1]["retry-after"], answer[1]["x-error-routing"]) == ("20", "true")
    assert engine.seen == []


@pytest.mark.acceptance("GW-22")
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS", "PUT"])
@pytest.mark.parametrize("path", [*Api, "/foo", "/v1/models", "/v1/files", "/v1/batches/b"])
async def test_a_client_never_picks_its_own_target(gateway, engine, method, path):
    asked = {"target-pod": engine.address, "routing-strategy": "random"}
    status, _, body = await ask(gateway, path, method=method, headers=asked)
    assert status == (405 if path in set(Api) else 501) or path == "/v1/models"
    assert status >= 400
    if method != "HEAD":
        assert set(json.loads(body)["error"]) == MEMBERS
    assert (engine.seen, gateway.exchange.questions) == ([], [])


@pytest.mark.acceptance("GW-23")
@pytest.mark.acceptance("GW-24")
async def test_what_a_client_may_not_say_is_not_heard(gateway, engine):
    spoofed = [(name, "10.9.9.9:1") for name in (*headers.INTERNAL, "x-request-id", "x-aibrix-pod")]
    _, told, _ = await ask(gateway, json={"model": "m"}, headers=[*spoofed, ("x-envoy-retry-on", "5xx")])
    (seen,) = engine.seen
    assert "10.9.9.9:1" not in [value for _, value in seen.headers]
    assert seen.header("x-envoy-retry-on") is None
    assert (seen.header("target-pod"), told["target-pod"]) == (engine.address, "pod-0")


@pytest.mark.acceptance("GW-23")
async def test_a_request_without_a_body_is_asked_about_too(gateway, engine):
    gateway.exchange.reply = lambda question: Refused(400, [], str(len(question.body)).encode())
    status, _, body = await ask(gateway, headers={"target-pod": engine.address})
    assert (status, body, engine.seen) == (400, b"0", [])


async def test_a_body_reaches_exchange_and_engine_byte_for_byte(gateway, engine):
    body = bytes(range(256)) * 8000
    await ask(gateway, data=io.BytesIO(body), headers={"content-type": "application/json"})
    assert engine.seen[0].body == body
    assert gateway.exchange.questions[0].body == body


async def test_an_engine_that_cannot_be_reached_is_a_503_in_openais_shape(gateway):
    gateway.exchange.reply = lambda _: forward("127.0.0.1:1", lease="unreachable")
    answer = await ask(gateway, json={"model": "m"})
    assert answer[0] == 503
    assert error_of(answer)["type"] == "overloaded_error"
    assert "UF" in (await gateway.ended("unreachable")).flags


async def test_an_engine_that_cuts_the_connection_is_a_503_in_openais_shape(gateway, engine):
    engine.reply = lambda _: Reply(closes_at_once=True)
    answer = await ask(gateway, json={"model": "m"})
    assert (answer[0], error_of(answer)["code"]) == (503, "service_unavailable")
    assert len(engine.seen) == 1


async def test_our_own_server_answers_for_models_and_hears_no_internal_headers(gateway, engine):
    heard = []

    async def answer(request):
        heard.append((request.method, request.path_qs, request.headers))
        return web.json_response({"object": "list", "data": []})

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, gateway.gateway.settings.api.path).start()
    try:
        for method, path in (("GET", "/v1/models"), ("GET", "/v1/models/org/m?x=1"), ("HEAD", "/v1/models")):
            status, _, body = await ask(gateway, path, method=method, headers={"target-pod": engine.address})
            assert (status, json.loads(body or b"0")) == (
                200,
                0 if method == "HEAD" else {"object": "list", "data": []},
            )
    finally:
        await runner.cleanup()
    assert [asked[:2] for asked in heard] == [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/org/m?x=1"),
        ("HEAD", "/v1/models"),
    ]
    assert not [asked for asked in heard if "target-pod" in asked[2]]
    assert (engine.seen, gateway.exchange.questions) == ([], [])


HEADERS = st.lists(
    st.tuples(
        st.sampled_from([*headers.INTERNAL, "x-request-id"]).flatmap(
            lambda name: st.lists(st.booleans(), min_size=len(name), max_size=len(name)).map(
                lambda upper: "".join(c.upper() if u else c for c, u in zip(name, upper, strict=True))
            )
        ),
        st.sampled_from(["10.9.9.9:1", "127.0.0.1:1", "true", ""]),
    ),
    min_size=1,
    max_size=8,
)


async def test_spoofed_headers_in_any_case_and_number_choose_nothing(gateway, engine):
    @settings(max_examples=100)
    @given(spoofed=HEADERS)
    def examples(spoofed):
        drawn.append(spoofed)

    drawn = []
    examples()
    for spoofed in drawn:
        engine.seen.clear()
        status, _, _ = await ask(gateway, json={"model": "m"}, headers=spoofed)
        (seen,) = engine.seen
        assert status == 200
        assert seen.header("target-pod") == engine.address
        assert seen.header("x-request-id") == "r-1"
        assert seen.header(headers.LEASE).startswith("lease-")
        assert seen.header("x-went-into-req-headers") == "true"
        assert all(seen.header(name) is None for name in (headers.MODEL, headers.REWRITE_PATH, headers.SHADOW))

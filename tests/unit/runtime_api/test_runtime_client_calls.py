"""What the client sends, and which outcome each kind of answer becomes."""

import json
import socket

import pytest
from raw_server import http

from aibrix_operator.runtime_api import client as runtime_client
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.client import RuntimeClient, base_url
from aibrix_operator.runtime_api.outcome import Done, NotSent, Refused, Unknown

WAKE = wire.WakeRequest(model_name="m", operation_id="o")
WOKEN = '{"status":"success","model_name":"m","operation_id":"o","applied":true,"phase":"booting"}'
EMPTY = '{"observed_at":"2026-11-29T08:00:19.351644Z","accelerators":[],"models":[],"cached_artifacts":[]}'


@pytest.fixture
def impatient(monkeypatch):
    """Deadlines that a test can wait for. Half of one is for the connection, which a busy machine is to make in it."""
    monkeypatch.setattr(runtime_client, "SNAPSHOT_DEADLINE_S", 1.0)
    monkeypatch.setattr(runtime_client, "CALL_DEADLINE_S", 1.0)


def test_deadlines_are_the_contracts():
    assert (runtime_client.SNAPSHOT_DEADLINE_S, runtime_client.CALL_DEADLINE_S) == (10, 60)


@pytest.mark.parametrize(
    ("ip", "url"), [("10.0.0.7", "http://10.0.0.7:8080"), ("fd00::7", "http://[fd00::7]:8080")], ids=["v4", "v6"]
)
def test_base_url_of_a_pod_address(ip, url):
    assert base_url(ip) == url


async def test_every_call_goes_to_its_path_with_its_body(client, server):
    server.reply = http(200, "{}")
    calls = [
        (client.activate, wire.ActivateRequest(model_name="m", artifact_url="hf://x"), "activate"),
        (client.deactivate, wire.DeactivateRequest(model_name="m"), "deactivate"),
        (client.set_kv_limit, wire.KVLimitRequest(model_name="m", limit_bytes=7, operation_id="k"), "kv-limit"),
        (client.sleep, wire.SleepRequest(model_name="m", level=1, operation_id="s"), "sleep"),
        (client.wake, WAKE, "wake"),
    ]
    for call, request, _ in calls:
        await call(server.base, request)
    await client.snapshot(server.base)
    assert [asked.line for asked in server.asked] == [
        *(f"POST /v1/runtime/models/{action} HTTP/1.1" for _, _, action in calls),
        "GET /v1/runtime/snapshot HTTP/1.1",
    ]
    sent = [json.loads(asked.body) for asked in server.asked[:-1]]
    assert sent == [request.model_dump(exclude_none=True) for _, request, _ in calls]
    assert {asked.header("content-type") for asked in server.asked[:-1]} == {"application/json"}


async def test_token_and_fence_go_where_they_belong(session, server):
    server.reply = http(200, EMPTY)
    client = RuntimeClient(session, token="s3cret", fence=lambda: {"x-fence": "9"})
    await client.snapshot(server.base)
    await client.wake(server.base, WAKE)
    assert [asked.header("authorization") for asked in server.asked] == ["Bearer s3cret"] * 2
    assert [asked.header("x-fence") for asked in server.asked] == ["9", "9"]


async def test_a_process_that_does_not_lead_reads_and_changes_nothing(session, server):
    server.reply = http(200, EMPTY)
    client = RuntimeClient(session, fence=lambda: None)
    assert isinstance(await client.snapshot(server.base), Done)
    outcome = await client.deactivate(server.base, wire.DeactivateRequest(model_name="m"))
    assert isinstance(outcome, NotSent)
    assert outcome.message.startswith("this operator does not lead")
    assert [asked.header("x-fence") for asked in server.asked] == [None]


async def test_done_carries_the_answer(client, server):
    server.reply = http(200, WOKEN)
    assert await client.wake(server.base, WAKE) == Done(
        wire.OperationResponse(model_name="m", operation_id="o", applied=True, phase=wire.EnginePhase.BOOTING)
    )


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        pytest.param(404, '{"detail":"model \'m\' is not active"}', "model 'm' is not active", id="not-found"),
        pytest.param(409, '{"detail":"still serving"}', "still serving", id="conflict"),
        pytest.param(422, '{"detail":[{"loc":["body"]}]}', '{"loc":["body"]}', id="unprocessable"),
        pytest.param(400, "<html>", "status 400", id="no-json"),
        pytest.param(400, b"x" * 1_048_577, "status 400", id="too-long-for-its-reason"),
        pytest.param(500, '{"status":"error","message":"no free port"}', "no free port", id="own-error-500"),
        pytest.param(200, '{"status":"error","message":"odd"}', "odd", id="own-error-200"),
    ],
)
async def test_refusals_name_the_pod_and_the_reason(client, server, status, body, said):
    server.reply = http(status, body)
    outcome = await client.wake(server.base, WAKE)
    assert isinstance(outcome, Refused)
    assert outcome.status == status
    assert f"127.0.0.1:{server.port}" in outcome.message
    assert said in outcome.message


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(http(500, "Internal Server Error"), id="bare-500"),
        pytest.param(http(502, "<html>"), id="proxy"),
        pytest.param(http(503, '{"detail":"x"}'), id="json-without-error"),
        pytest.param(http(307, "", "Location: /else\r\n"), id="redirect"),
        pytest.param(http(204, ""), id="no-content"),
        pytest.param(http(200, WOKEN[:-1]), id="cut-json"),
        pytest.param(http(200, WOKEN)[:-5], id="cut-body"),
        pytest.param(http(200, WOKEN)[:30], id="cut-head"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x16\x03\x01 not http\r\n\r\n", id="not-http"),
        pytest.param(b"HTTP/1.1 200 X\r\nContent-Length: many\r\n\r\n{}", id="odd-length"),
        pytest.param(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}", id="odd-chunk"),
        pytest.param(http(200, b"\x1f\x8b\x00", "Content-Encoding: gzip\r\n"), id="odd-gzip"),
        pytest.param(b"HTTP/1.1 200 X\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n{}", id="long-header"),
        pytest.param(http(200, WOKEN.replace("true", "NaN")), id="nan"),
        pytest.param(http(200, "[" * 100_000), id="nested"),
        pytest.param(http(200, "[" * 100_000 + "]" * 100_000), id="nested-and-closed"),
        pytest.param(http(200, WOKEN + " " * (1_048_577 - len(WOKEN))), id="a-byte-too-long"),
        pytest.param(http(200, WOKEN + " " * 3_000_000), id="far-too-long"),
    ],
)
async def test_everything_else_is_unknown_and_names_the_pod(client, server, reply):
    server.reply = reply
    outcome = await client.wake(server.base, WAKE)
    assert isinstance(outcome, Unknown)
    assert f"127.0.0.1:{server.port}" in outcome.message
    assert len(outcome.message) < 600


async def test_an_answer_of_exactly_one_mib_counts(client, server):
    server.reply = http(200, WOKEN + " " * (1_048_576 - len(WOKEN)))
    assert isinstance(await client.wake(server.base, WAKE), Done)


async def test_silence_is_unknown(client, server, impatient):
    server.reply = None
    outcome = await client.wake(server.base, WAKE)
    assert outcome == Unknown(f"runtime at 127.0.0.1:{server.port} did not answer /v1/runtime/models/wake within 1 s")


async def test_half_an_answer_is_silence_too(client, server, impatient):
    server.reply = None
    outcome = await client.snapshot(server.base)
    assert isinstance(outcome, Unknown)


async def test_a_closed_port_was_never_called(client, server):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    outcome = await client.wake(f"http://127.0.0.1:{port}", WAKE)
    assert isinstance(outcome, NotSent)
    assert not outcome.left_alone
    assert f"127.0.0.1:{port}" in outcome.message


async def test_a_connection_that_nobody_takes_was_never_called(client, impatient):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # the backlog is full now, so further SYNs are dropped
            outcome = await client.wake(f"http://127.0.0.1:{port}", WAKE)
            again = await client.wake(f"http://127.0.0.1:{port}", WAKE)
    assert outcome == NotSent(
        f"runtime at 127.0.0.1:{port} took no connection in time, so /v1/runtime/models/wake was not called"
    )
    assert isinstance(again, NotSent)
    assert again.left_alone


@pytest.mark.parametrize(
    "base", ["", "10.0.0.1:8080", "http://", "http://[::1", "ftp://h:1", "http://h:99999", "http://h:x", "http://\x00"]
)
async def test_an_address_that_cannot_be_read_was_never_called(client, base):
    outcome = await client.wake(base, WAKE)
    assert isinstance(outcome, NotSent)
    assert not outcome.left_alone

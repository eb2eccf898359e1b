"""The client's call of the change feed: what is sent, how long it waits, and what its silence means."""

import json

import pytest
from raw_server import http

from aibrix_operator.runtime_api import client as runtime_client
from aibrix_operator.runtime_api.outcome import Done, NotSent, Refused, Unknown

SNAPSHOT = {"observed_at": "2026-11-29T08:00:19.351644Z", "accelerators": [], "models": []}


@pytest.fixture
def impatient(monkeypatch):
    """Half of it is for the connection, which a busy machine is to make in it."""
    monkeypatch.setattr(runtime_client, "SNAPSHOT_DEADLINE_S", 1.0)


async def test_version_and_time_go_into_the_query(client, server):
    server.reply = http(200, json.dumps({"version": "a-2", "snapshot": SNAPSHOT}))
    told = await client.changes(server.base, "a b&c", 12.5)
    assert isinstance(told, Done)
    assert (told.answer.version, told.answer.snapshot.models) == ("a-2", ())
    assert server.asked[0].line == "GET /v1/runtime/changes?since=a+b%26c&timeout=12.500 HTTP/1.1"


@pytest.mark.parametrize("status", [404, 405])
async def test_a_sidecar_without_a_feed_says_so_by_its_status(client, server, status):
    server.reply = http(status, '{"detail":"Not Found"}')
    told = await client.changes(server.base, "", 0.0)
    assert isinstance(told, Refused)
    assert told.status == status


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"version": "", "snapshot": SNAPSHOT}, id="no-version"),
        pytest.param({"version": "v" * 257, "snapshot": SNAPSHOT}, id="endless-version"),
        pytest.param({"version": "v"}, id="no-snapshot"),
        pytest.param({"version": "v", "snapshot": {**SNAPSHOT, "models": None}}, id="half-a-snapshot"),
    ],
)
async def test_half_an_answer_is_unknown(client, server, body):
    server.reply = http(200, json.dumps(body))
    assert isinstance(await client.changes(server.base, "", 0.0), Unknown)


async def test_a_cut_answer_is_unknown_and_leaves_nobody_alone(client, server):
    server.reply = http(200, json.dumps({"version": "v", "snapshot": SNAPSHOT}))[:-7]
    assert isinstance(await client.changes(server.base, "", 0.0), Unknown)
    assert isinstance(await client.changes(server.base, "", 0.0), Unknown)


async def test_silence_beyond_the_time_has_the_sidecar_left_alone(client, server, impatient):
    server.reply = None
    assert await client.changes(server.base, "v", 0.1) == Unknown(
        f"runtime at 127.0.0.1:{server.port} did not answer /v1/runtime/changes within 1.1 s"
    )
    again = await client.snapshot(server.base)
    assert isinstance(again, NotSent)
    assert again.left_alone

"""The change feed over real HTTP: bounds of its arguments, callers that leave, and a sidecar that is told to end."""

import asyncio
import os
import signal
import sys
import time

import aiohttp
import pytest

from aibrix_operator.runtime_api.client import CHANGES_PATH, RuntimeClient
from aibrix_operator.runtime_api.outcome import Done, NotSent, Refused, Unknown
from aibrix_operator.runtime_api.wire import ChangesResponse
from aibrix_operator.sandbox.control_plane import free_port

SERVE = (
    "from aibrix_operator.runtime.app import serve; "
    "from aibrix_operator.runtime.settings import RuntimeSettings; "
    "serve(RuntimeSettings())"
)
DEADLINE_S = 20.0


@pytest.fixture
async def client():
    async with aiohttp.ClientSession() as session:
        yield RuntimeClient(session)


@pytest.fixture
async def process(tmp_path, client):
    """A sidecar of its own process and its base URL; it answers already."""
    port = free_port()
    environment = os.environ | {
        "AIBRIX_RUNTIME_HOST": "127.0.0.1",
        "AIBRIX_RUNTIME_PORT": str(port),
        "AIBRIX_ENGINE_REGISTRY_PATH": str(tmp_path / "engines.json"),
        "AIBRIX_WEIGHT_CACHE_DIR": str(tmp_path),
        "AIBRIX_KV_SEGMENT_DIR": str(tmp_path),
    }
    sidecar = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVE, env=environment)
    base, deadline = f"http://127.0.0.1:{port}", time.monotonic() + DEADLINE_S
    while not isinstance(await client.changes(base, "", 0.0), Done):
        assert sidecar.returncode is None
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    yield sidecar, base
    if sidecar.returncode is None:
        sidecar.kill()
    await sidecar.wait()


async def version_at(client, base):
    told = await client.changes(base, "", 0.0)
    assert isinstance(told, Done)
    return told.answer.version


async def test_a_wait_outside_its_bounds_is_refused(client, process):
    _, base = process
    for timeout_s in (-1, 50.1, float("nan"), float("inf")):
        refused = await client._call(
            base, CHANGES_PATH, None, ChangesResponse, 5.0, query={"since": "x", "timeout": str(timeout_s)}
        )
        assert isinstance(refused, Refused)
        assert refused.status == 422


async def test_the_same_version_comes_back_when_the_time_is_over(client, process):
    _, base = process
    version = await version_at(client, base)
    asked_s = time.monotonic()
    told = await client.changes(base, version, 0.2)
    assert isinstance(told, Done)
    assert told.answer.version == version
    assert time.monotonic() - asked_s >= 0.2


async def test_a_sidecar_that_is_told_to_end_does_not_wait_for_its_callers(client, process):
    sidecar, base = process
    # As many connections as there are calls beside each other: a poll whose own is yet to be made is not sent.
    version, *_ = await asyncio.gather(*(version_at(client, base) for _ in range(4)))
    polls = [asyncio.create_task(client.changes(base, version, 40.0)) for _ in range(3)]
    assert await version_at(client, base) == version  # sent after them, so they wait by now
    told_s = time.monotonic()
    sidecar.send_signal(signal.SIGTERM)
    await asyncio.wait_for(sidecar.wait(), DEADLINE_S)
    assert time.monotonic() - told_s < 4.0  # its grace for calls under way is 5 s
    assert [type(told) for told in await asyncio.gather(*polls)] == [Done] * 3


async def test_a_killed_sidecar_breaks_the_poll_and_tells_nothing_of_its_engines(client, process):
    sidecar, base = process
    version = await version_at(client, base)
    poll = asyncio.create_task(client.changes(base, version, 40.0))
    assert await version_at(client, base) == version  # sent after it
    sidecar.kill()
    # On a busy machine its connection may not have been made yet, and then it was never sent.
    assert isinstance(await asyncio.wait_for(poll, DEADLINE_S), Unknown | NotSent)
    assert isinstance(await client.changes(base, version, 40.0), NotSent)

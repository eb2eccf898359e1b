"""The benchmark's own parts do what its figures assume."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.client import RuntimeClient
from aibrix_operator.runtime_api.outcome import Done, Refused
from bench.controller import measure, objects, peers, runtimes

USABLE = 1 << 40


@pytest.fixture
async def fleet() -> AsyncIterator[tuple[RuntimeClient, list[str]]]:
    """A client, and the base URLs of two of the played runtimes."""
    app = runtimes.Fleet(2, USABLE).app()
    first = TestServer(app, host=objects.pod_address(0))
    second = TestServer(runtimes.Fleet(2, USABLE).app(), host=objects.pod_address(1))
    await first.start_server()
    await second.start_server()
    async with aiohttp.ClientSession() as session:
        yield RuntimeClient(session), [str(server.make_url("")).rstrip("/") for server in (first, second)]
    await first.close()
    await second.close()


def done(outcome):
    assert isinstance(outcome, Done), outcome
    return outcome.answer


async def test_played_runtime_speaks_the_sidecars_contract(fleet):
    client, (base, other) = fleet
    claim = wire.ClaimRef(namespace="bench", name="m", uid="u")
    request = wire.ActivateRequest(model_name="m", artifact_url="huggingface://example/m", claim_ref=claim)
    started = done(await client.activate(base, request))
    assert done(await client.activate(base, request)) == started
    limit = wire.KVLimitRequest(model_name="m", limit_bytes=1 << 30, operation_id="1")
    assert done(await client.set_kv_limit(base, limit)).applied
    (engine,) = done(await client.snapshot(base)).models
    assert (engine.claim_ref, engine.port, engine.ready, engine.kv_capacity_bytes) == (
        claim,
        started.port,
        True,
        1 << 30,
    )
    assert done(await client.snapshot(other)).models == ()
    done(await client.sleep(base, wire.SleepRequest(model_name="m", level=1, operation_id="2")))
    assert done(await client.snapshot(base)).models[0].phase is wire.EnginePhase.SLEEPING
    done(await client.wake(base, wire.WakeRequest(model_name="m", operation_id="3")))
    done(await client.deactivate(base, wire.DeactivateRequest(model_name="m")))
    assert done(await client.snapshot(base)).models == ()
    assert isinstance(await client.set_kv_limit(base, limit), Refused)


@pytest.mark.integration
async def test_our_queue_writes_each_claim_once():
    load = measure.Load(present=10, created=10, writers=4, workers=4, deadline_s=60)
    (queue,) = [peer for peer in peers.PEERS if peer.name == "queue"]
    result = await measure.run(queue, load)
    assert result.writes == {"PATCH modelclaims/status": 20}
    assert result.writes_per_object == 1
    assert result.cpu_ms_per_object > 0
    assert 20 < result.peak_rss_mib < 250

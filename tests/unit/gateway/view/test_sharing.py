"""Prefix table and session pins of two replicas: shared where there is a Redis, each its own without."""

import asyncio
import itertools
import time

import pytest
from gateway_objects import NAME, Cluster, pod, until
from prometheus_client import CollectorRegistry

from aibrix_operator.gateway.sharing import Sharing
from aibrix_operator.statesync.sync import StatesyncNeedsRedis

BLOCKS = (11, 12, 13)


@pytest.fixture
def cluster():
    made = Cluster()
    made.has(pod("a", labels={NAME: "m"}))
    return made


def sharing(cluster, url, **environ):
    return Sharing(url, cluster.view.models, CollectorRegistry(), environ, time.time)


def matched(replica, cluster, blocks=BLOCKS):
    """Blocks of the prompt that the replica knows its one engine to have."""
    return replica.prefixes.match("m", cluster["m"].endpoints, blocks, time.time())[0]


async def until_heard(one, other, cluster):
    """Until ``other`` knows a prompt of ``one``: a new one each time, as the first are told before it listens."""
    async with asyncio.timeout(20):
        for prompt in itertools.count(1):
            one.prefixes.add("m", cluster["m"].endpoints[0], (prompt,), time.time())
            await asyncio.sleep(0.05)
            if matched(other, cluster, (prompt,)):
                return


async def test_what_one_replica_learned_of_a_prompt_is_known_to_the_other_at_once(cluster, redis_server):
    one, other = sharing(cluster, redis_server.url), sharing(cluster, redis_server.url)
    one.start()
    other.start()
    try:
        await until_heard(one, other, cluster)
        assert one.status()["shared"] is True
    finally:
        await one.close()
        await other.close()


async def test_a_session_is_pinned_for_both(cluster, redis_server):
    one, other = sharing(cluster, redis_server.url), sharing(cluster, redis_server.url)
    try:
        one.pins.pin("m", "key-of-both", "10.0.0.1:8000")
        await one.pins.settled()
        await other.pins.look("m", "key-of-both")
        assert other.pins.address("m", "key-of-both") == "10.0.0.1:8000"
    finally:
        await one.close()
        await other.close()


async def test_without_redis_each_has_its_own_and_hashes_that_nobody_can_foresee(cluster):
    one, other = sharing(cluster, None), sharing(cluster, None)
    assert one.prefixes.settings.seed != other.prefixes.settings.seed
    assert one.status() == {"shared": False, "prefix_blocks": 0, "session_pins": 0}
    one.start()
    await one.close()


async def test_sharing_can_be_switched_off_and_cannot_be_asked_for_without_redis(cluster, redis_server, monkeypatch):
    monkeypatch.setenv("AIBRIX_STATESYNC_ENABLED", "false")
    off = sharing(cluster, redis_server.url, AIBRIX_STATESYNC_ENABLED="false")
    assert off.status()["shared"] is False
    await off.close()
    monkeypatch.setenv("AIBRIX_STATESYNC_ENABLED", "true")
    with pytest.raises(StatesyncNeedsRedis):
        sharing(cluster, None, AIBRIX_STATESYNC_ENABLED="true")


async def test_redis_may_be_absent_at_the_start(cluster):
    alone = sharing(cluster, "redis://127.0.0.1:1/0")
    alone.start()
    alone.prefixes.add("m", cluster["m"].endpoints[0], BLOCKS, time.time())
    await until(lambda: alone.status()["blocks_not_told_yet"] == len(BLOCKS))
    assert matched(alone, cluster) == len(BLOCKS)
    await alone.close()


@pytest.mark.acceptance("GW-60")
async def test_gw60_a_pod_that_is_gone_matches_nothing(cluster):
    alone = sharing(cluster, None)
    (endpoint,) = cluster["m"].endpoints
    alone.prefixes.add("m", endpoint, BLOCKS, time.time())
    assert matched(alone, cluster) == len(BLOCKS)
    alone.pod_gone(endpoint.uid)
    assert matched(alone, cluster) == 0


async def test_an_engine_that_sleeps_matches_nothing_when_it_is_awake_again(cluster):
    alone = sharing(cluster, None)
    (endpoint,) = cluster["m"].endpoints
    alone.prefixes.add("m", endpoint, BLOCKS, time.time())
    alone.engine_ended("m", endpoint.incarnation)
    assert matched(alone, cluster) == 0
    await alone.close()

"""What the page of an operator's process sees, on the replica that leads and on one that does not; in virtual time."""

import asyncio

import pytest
from simulated import H20, simulated

from aibrix_operator.api import names
from aibrix_operator.page.sources import KEPT_S, READ_S, WorldSource
from aibrix_operator.sim import loop
from aibrix_operator.sim.world import SimulatedCluster


def engines(look):
    """Models that are on each Pod, by its reading; None where there is none."""
    return {
        pod.name: None if pod.reading.snapshot is None else [m.model_name for m in pod.reading.snapshot.models]
        for fleet in look.fleets
        for pod in fleet.pods.values()
    }


class Hanging:
    """Runtimes that take their time."""

    async def snapshot(self, base):
        await asyncio.sleep(60)


@simulated
async def test_the_leaders_page_shows_what_its_readers_have_heard(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.apply("a", "30Gi", "10Gi")
    await cluster.run(10)
    look = await WorldSource(cluster.world).look()
    assert engines(look) == {"warm-0": ["model-of-a"]}
    assert [c.name for c in look.fleet("default").claims] == ["a"]
    assert look.fleet("default").pods["warm-0"].pool.deployment == "pool-a"


def test_a_replica_that_does_not_lead_reads_the_runtimes_itself():
    async def story():
        async with SimulatedCluster(operators=2) as cluster:
            cluster.add_pod("warm-0", H20)
            cluster.apply("a", "30Gi", "10Gi")
            await cluster.run(20)
            [other] = [o for o in cluster.operators if not o.is_leader]
            assert not other.world.readers
            look = await WorldSource(other.world).look()
            assert engines(look) == {"warm-0": ["model-of-a"]}
            assert look.warnings == ()

    loop.run(story())


@pytest.mark.parametrize("silence", ["hangs", "is gone"])
@simulated
async def test_a_silent_runtime_costs_a_look_two_seconds_at_most(cluster, silence):
    cluster.add_pod("warm-0", H20)
    await cluster.run(5)
    for reader in list(cluster.world.readers.values()):
        reader.stop()
    cluster.world.readers.clear()
    if silence == "hangs":
        cluster.world.runtimes = Hanging()
    else:
        cluster.runtimes.by_ip.clear()
    began = cluster.now_s()
    look = await WorldSource(cluster.world).look()
    assert cluster.now_s() - began <= READ_S
    assert engines(look) == {"warm-0": None}
    assert look.warnings == ("none of 1 runtime(s) can be reached from here",)


@simulated
async def test_a_reading_that_was_discarded_for_a_write_is_stood_in_for_by_the_last_one_for_a_while(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.apply("a", "30Gi", "10Gi")
    await cluster.run(10)
    source = WorldSource(cluster.world)
    await source.look()
    [reader] = cluster.world.readers.values()
    reader.stop()
    reader.discard()
    assert engines(await source.look()) == {"warm-0": ["model-of-a"]}
    await asyncio.sleep(KEPT_S)
    assert engines(await source.look()) == {"warm-0": None}


@simulated
async def test_a_pod_that_lost_its_labels_is_shown_while_an_instance_is_recorded_there(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.apply("a", "30Gi", "10Gi")
    await cluster.run(10)
    source = WorldSource(cluster.world)
    cluster.label_pod("warm-0", {names.POOL_LABEL: None})
    look = await source.look()
    assert set(engines(look)) == {"warm-0"}

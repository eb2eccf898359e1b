"""What another hand changed is excused until watches tell of it, and no longer."""

import pytest
from simulated import CARD_24, GIB

from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.sim import loop
from aibrix_operator.sim.world import NAMESPACE, SimulatedCluster

ROUTE = '{"model":"model-of-a","port":20000,"state":"active","wakeByRequest":true}'


def broken_after(*happen):
    """What the laws say after a claim was served, and these happened one after the other."""

    async def play():
        async with SimulatedCluster() as cluster:
            cluster.add_pod("warm-0", CARD_24)
            cluster.seat("a", "warm-0", 6 * GIB, GIB, limit_bytes=17 * GIB)
            await cluster.run(3)
            assert cluster.laws.broken == []
            for do in happen:
                await do(cluster)
            return "\n".join(cluster.laws.broken)

    return loop.run(play())


async def watches_lag(cluster):
    cluster.store.watch_delay_s = 4.0
    await cluster.run(1)


async def they_lag_less_and_other_things_change(cluster):
    cluster.store.put(PODS, {"metadata": {"name": "elsewhere", "namespace": "other"}})  # told of after 4 s
    cluster.store.watch_delay_s = 0.5


async def record_is_forged(cluster):
    (instance,) = cluster.store.objects["modelclaims", NAMESPACE, "a"]["status"]["instances"]
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "a"), {"status": {"instances": [{**instance, "kvLimitBytes": 1}]}})
    cluster.store.put(PODS, {"metadata": {"name": "elsewhere", "namespace": "third"}})


async def no_status_can_be_written(cluster):
    cluster.store.fault = lambda verb, *_: errors.Unavailable("not now") if verb == "status" else None


async def claim_is_made_anew(cluster):
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "a"), {"metadata": {"finalizers": []}})
    cluster.delete_claim("a")
    cluster.apply("a", "6Gi", "1Gi")
    cluster.store.put(PODS, {"metadata": {"name": "elsewhere", "namespace": "third"}})


async def some_time_passes(cluster):
    await cluster.run(2)


async def route_is_written(cluster):
    """As by an operator that has not heard of what was changed last."""
    key = names.route_annotation("a")
    cluster.store.change(PODS, (NAMESPACE, "warm-0"), {"metadata": {"annotations": {key: None}}})
    await cluster.store.patch_annotations(PODS, NAMESPACE, "warm-0", {key: ROUTE})


@pytest.mark.parametrize("change", [record_is_forged, claim_is_made_anew])
def test_a_change_that_is_on_its_way_is_excused_also_when_watches_lag_less_since(change):
    lag = (watches_lag, they_lag_less_and_other_things_change)
    assert broken_after(*lag, change, some_time_passes, route_is_written) == ""


def test_a_record_that_was_told_of_is_not_excused():
    story = (no_status_can_be_written, record_is_forged, some_time_passes, route_is_written)
    assert "law 3: a is routed" in broken_after(*story)

"""What wakes a pass: everything that somebody else did at once, and our own words to people at leisure."""

import asyncio
from functools import partial

from simulated import CARD_24, simulated
from sleepers import policy

from aibrix_operator.modelclaim import world as worlds


@simulated
async def test_telling_a_refused_claim_is_followed_by_one_pass_at_leisure(cluster):
    cluster.add_pod("warm-0", CARD_24)
    await cluster.run(1)
    cluster.store.delay = partial(asyncio.sleep, 1)
    cluster.apply("too-large", "30Gi", "1Gi")
    await cluster.run(0.5)
    cluster.world.whole_pass_s["default"] = 0.5
    before = cluster.world.passes.passes
    await cluster.run(0.4 + 0.5 * worlds.LEISURE)
    assert cluster.condition("too-large", "Scheduled")[1] == "TooLargeForAnyCard"
    assert cluster.world.passes.passes == before
    await cluster.run(0.2)
    assert cluster.world.passes.passes == before + 1


@simulated
async def test_somebody_elses_change_wakes_a_pass_at_once(cluster):
    cluster.add_pod("warm-0", CARD_24)
    await cluster.run(1)
    cluster.apply("too-large", "30Gi", "1Gi")
    await cluster.run(0.5)
    cluster.patch_claim("too-large", {"spec": {"perGPU": {"maximumFootprint": "3Gi", "kvFloor": "1Gi"}}})
    await cluster.run(0.5)
    assert cluster.status("too-large").instances != ()


def passes_over(cluster, scope):
    name = "aibrix_modelclaim_pass_duration_seconds_count"
    return cluster.world.metrics.registry.get_sample_value(name, {"scope": scope})


@simulated
async def test_what_one_card_waits_for_is_looked_at_there_alone(cluster):
    """A whole pass that finds a card waiting for its time has none follow it: in a fleet each would hold up a wake."""
    cluster.set_policy(policy(sleepAfterSeconds=25))
    for pod in ("warm-0", "warm-1"):
        cluster.add_pod(pod, CARD_24)
        cluster.apply(f"on-{pod}", "10Gi", "1Gi")
        await cluster.run(8)
    cluster.label_pod("warm-0", {"team": "a"})
    await cluster.run(1)
    whole, some = passes_over(cluster, "whole"), passes_over(cluster, "some")
    await cluster.run(40)
    assert {str(cluster.status(f"on-{pod}").phase) for pod in ("warm-0", "warm-1")} == {"Sleeping"}
    assert passes_over(cluster, "some") > some + 2
    assert passes_over(cluster, "whole") == whole

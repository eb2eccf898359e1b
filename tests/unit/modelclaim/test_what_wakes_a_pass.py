"""What wakes a pass: everything that somebody else did at once, and our own words to people at leisure."""

import asyncio
from functools import partial

from simulated import CARD_24, simulated

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

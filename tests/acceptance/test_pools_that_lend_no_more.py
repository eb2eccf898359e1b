"""A pool that ceases to lend: what it lent is taken back as room comes, and nobody who has a seat waits for that."""

import pytest
from simulated import CARD_24, GIB, limits, model, simulated
from sleepers import calls, lending, policy, seat_asleep, until

from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.runtime_api.wire import EnginePhase


async def a_card_that_lent_more_than_it_has(cluster):
    """On one card of 24 GiB ``awake`` (6 + 1) serves, ``kept`` (4 + 1) sleeps with its seat, and ``old`` and ``young``
    (8 + 1) have lent theirs and hold 1 GiB: 30 GiB from now on, for the pool lends no more."""
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending())
    cluster.seat("awake", "warm-0", 6 * GIB, GIB, limit_bytes=4 * GIB)
    for lender in ("old", "young"):
        seat_asleep(cluster, lender, "warm-0", 8 * GIB, GIB, limit_bytes=0, asleep_bytes=GIB)
        await cluster.run(1)
    cluster.set_policy(policy(sleepAfterSeconds=3600))
    seat_asleep(cluster, "kept", "warm-0", 4 * GIB, GIB, limit_bytes=GIB, asleep_bytes=GIB)
    return runtime


@pytest.mark.parametrize("sleeper", ["kept", "old"])
@simulated
async def test_a_sleeper_wakes_whose_seat_is_free_beside_those_that_are_taken(cluster, sleeper):
    await a_card_that_lent_more_than_it_has(cluster)
    await cluster.run(15)
    cluster.request_wake("warm-0", sleeper)
    await until(cluster, lambda: cluster.status(sleeper).phase == ClaimPhase.ACTIVE, 25)
    assert cluster.status("awake").phase == ClaimPhase.ACTIVE


@simulated
async def test_who_lent_its_seat_and_comes_back_awake_stays_awake_where_there_is_room(cluster):
    runtime = await a_card_that_lent_more_than_it_has(cluster)
    runtime.engines[model("young")].phase = EnginePhase.ACTIVE
    await cluster.run(30)
    assert cluster.status("young").phase == ClaimPhase.ACTIVE
    assert limits(cluster, "old", "kept") == (0, GIB)
    assert calls(runtime, "sleep") == []


@simulated
async def test_it_is_put_to_sleep_again_where_there_is_none(cluster):
    runtime = await a_card_that_lent_more_than_it_has(cluster)
    await cluster.run(15)
    runtime.engines[model("young")].phase = EnginePhase.ACTIVE
    await cluster.run(25)
    assert calls(runtime, "sleep") == [("sleep", model("young"), 0)]


@simulated
async def test_seats_are_given_back_as_room_comes_oldest_first(cluster):
    await a_card_that_lent_more_than_it_has(cluster)
    await cluster.run(15)
    assert limits(cluster, "old", "young") == (GIB, 0)
    cluster.delete_claim("awake")
    await cluster.run(20)
    assert limits(cluster, "old", "young") == (GIB, GIB)


@simulated
async def test_no_claim_is_placed_where_a_seat_is_owed(cluster):
    await a_card_that_lent_more_than_it_has(cluster)
    await cluster.run(15)
    cluster.apply("new", "1Gi", "1Gi")
    await cluster.run(30)
    assert cluster.status("new").phase == ClaimPhase.PENDING


@simulated
async def test_room_that_comes_is_for_who_is_asked_for_before_an_older_seat_is_given_back(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending())
    cluster.seat("awake", "warm-0", 15 * GIB, GIB, limit_bytes=GIB)
    for lender in ("old", "young"):
        seat_asleep(cluster, lender, "warm-0", 8 * GIB, GIB, limit_bytes=0, asleep_bytes=GIB)
        await cluster.run(1)
    cluster.set_policy(policy(sleepAfterSeconds=3600))
    cluster.request_wake("warm-0", "young")
    await cluster.run(15)
    assert cluster.status("young").instances[0].reason == "WaitingForRoom"
    cluster.patch_claim("awake", {"spec": {"perGPU": {"maximumFootprint": "12Gi", "kvFloor": "1Gi"}}})
    await until(cluster, lambda: cluster.status("young").phase == ClaimPhase.ACTIVE, 40)
    assert limits(cluster, "old") == (0,)

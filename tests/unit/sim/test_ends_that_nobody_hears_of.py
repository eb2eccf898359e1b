"""A claim that vanishes while the operator's watches are broken is excused until it is told, and no longer."""

import pytest
from simulated import CARD_24, GIB, model
from sleepers import lending, seat_asleep

from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.client import base_url
from aibrix_operator.runtime_api.outcome import Unknown
from aibrix_operator.sim import loop
from aibrix_operator.sim.world import NAMESPACE, SimulatedCluster

WARM_0 = base_url("10.0.0.1")


def two_are_served(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.seat("a", "warm-0", 6 * GIB, GIB, limit_bytes=6 * GIB)
    cluster.seat("gone", "warm-0", 8 * GIB, GIB, limit_bytes=4 * GIB)


def one_lent_its_seat(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending())
    cluster.seat("gone", "warm-0", 16 * GIB, GIB, limit_bytes=7 * GIB)
    seat_asleep(cluster, "sleeper", "warm-0", 9 * GIB, GIB, limit_bytes=0, asleep_bytes=GIB)


def broken_after(*happen, begins=two_are_served):
    """What the laws say after some claims were served on a card, and these happened one after the other."""

    async def play():
        async with SimulatedCluster() as cluster:
            begins(cluster)
            await cluster.run(3)
            assert cluster.laws.broken == []
            for do in happen:
                await do(cluster)
            return "\n".join(cluster.laws.broken)

    return loop.run(play())


async def watches_break(cluster):
    cluster.leader.go_deaf()
    cluster.laws.went_deaf(cluster.leader.name)


async def watches_are_back(cluster):
    cluster.leader.hear_again()
    cluster.laws.hears_again(cluster.leader.name)
    await cluster.run(3)


async def claim_vanishes(cluster):
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "gone"), {"metadata": {"finalizers": []}})
    cluster.delete_claim("gone")
    await cluster.run(3)


async def namesake_is_made(cluster):
    cluster.apply("gone", "8Gi", "1Gi")
    await cluster.run(3)


async def watches_lag(cluster):
    cluster.store.watch_delay_s = 4.0


async def status_is_wiped_on_the_way(cluster):
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "gone"), {"status": None})
    await cluster.run(1)


async def time_passes(cluster):
    cluster.store.watch_delay_s = 0.0
    await cluster.run(20)


async def all_is_listed(cluster):
    cluster.leader.resync()
    await cluster.run(3)


async def limit_is_written(cluster):
    told = cluster.laws.told["10.0.0.1"][-1].snapshot
    operation = f"kv-plan/default/warm-0/gone/{2 * GIB}/{int(told.observed_at.timestamp() * 1_000_000) * 1_000}"
    request = wire.KVLimitRequest(model_name=model("gone"), limit_bytes=2 * GIB, operation_id=operation)
    await cluster.runtimes.set_kv_limit(WARM_0, request)


async def another_is_applied(cluster):
    cluster.apply("another", "2Gi", "1Gi")
    await cluster.run(10)


async def another_cannot_be_started(cluster):
    async def lost(call):
        return Unknown("lost") if call[0] == "activate" else None

    cluster.runtimes.by_ip["10.0.0.1"].before_call = lost
    await another_is_applied(cluster)


async def another_can_be_started(cluster):
    cluster.runtimes.by_ip["10.0.0.1"].before_call = None
    await cluster.run(60)
    assert model("another") in cluster.runtimes.by_ip["10.0.0.1"].engines


async def routes_are_wiped(cluster):
    for name in cluster.annotations("warm-0"):
        cluster.store.change(PODS, (NAMESPACE, "warm-0"), {"metadata": {"annotations": {name: None}}})
    await cluster.run(1)
    assert len(cluster.annotations("warm-0")) == 2


async def sleeper_comes_back_awake(cluster):
    runtime = cluster.runtimes.by_ip["10.0.0.1"]
    runtime.wake(model("sleeper"))
    await cluster.run(3)
    assert [call[0] for call in runtime.calls if call[1] == model("sleeper")] == ["sleep"]


async def write_is_refused(cluster):
    """Its engine dies for good, and the operator publishes that."""
    cluster.runtimes.by_ip["10.0.0.1"].fail(model("gone"))
    await cluster.run(3)


VANISHED = (watches_break, claim_vanishes, watches_are_back)
NO_CLAIM = "is given a limit, and no claim records it there"


def test_a_limit_of_a_claim_that_vanished_unheard_is_excused():
    assert broken_after(*VANISHED, limit_is_written) == ""


@pytest.mark.parametrize("happens", [another_is_applied, routes_are_wiped])
def test_what_the_operator_does_for_its_engine_meanwhile_is_excused(happens):
    assert broken_after(*VANISHED, happens) == ""


def test_a_start_beside_its_engine_is_excused():
    assert broken_after(another_cannot_be_started, *VANISHED, another_can_be_started) == ""


def test_a_change_that_was_on_its_way_when_the_watches_broke_is_excused():
    lost = (watches_lag, status_is_wiped_on_the_way, watches_break, time_passes)
    assert broken_after(*lost, limit_is_written) == ""


def test_a_sleeper_that_is_put_back_because_its_engine_still_counts_is_excused():
    assert broken_after(*VANISHED, sleeper_comes_back_awake, begins=one_lent_its_seat) == ""


def test_it_is_not_once_all_claims_are_listed():
    assert NO_CLAIM in broken_after(*VANISHED, all_is_listed, limit_is_written)


def test_it_is_not_once_a_write_was_answered_with_not_found():
    assert NO_CLAIM in broken_after(*VANISHED, write_is_refused, limit_is_written)


def test_it_is_not_once_the_operator_was_told_of_a_namesake():
    assert "no claim" in broken_after(*VANISHED, namesake_is_made, limit_is_written)


def test_a_limit_of_a_claim_whose_end_was_heard_of_is_not_excused():
    assert NO_CLAIM in broken_after(claim_vanishes, limit_is_written)

"""The laws of who yields, and of how long one may wait, catch a controller that breaks them."""

import pytest
from builders import SEAT, make_claim, make_engine, make_fleet, make_instance, make_pod, make_snapshot
from simulated import CARD_24, GIB, model
from sleepers import lending, seat_asleep, uid

from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.modelclaim import waking
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.client import base_url
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim import at_rest, loop
from aibrix_operator.sim.world import LawBroken, SimulatedCluster

WARM_0 = base_url("10.0.0.1")


def broken_by(story):
    """What the laws say of ``async def story(cluster)``: a and b serve, a third sleeps and finds no room."""

    async def play():
        async with SimulatedCluster(is_strict=True) as cluster:
            cluster.add_pod("warm-0", CARD_24)
            cluster.set_policy(lending(3600))
            for claim in "ab":
                cluster.seat(claim, "warm-0", 9 * GIB, GIB, limit_bytes=2 * GIB)
            seat_asleep(cluster, "sleeper", "warm-0", 9 * GIB, GIB, limit_bytes=0, asleep_bytes=GIB)
            await cluster.run(20)
            try:
                await story(cluster)
            except LawBroken as error:
                return str(error)
            return "\n".join(cluster.laws.broken)

    return loop.run(play())


async def used_and_put_to_sleep(cluster, used, chosen):
    """``used`` answers a request half a minute before ``chosen`` is put to sleep for somebody."""
    cluster.runtimes.by_ip["10.0.0.1"].engines[model(used)].finished += 1
    await cluster.run(30)
    operation = f"make-room/{uid(cluster, 'warm-0')}/kvc_{chosen}/uid-of-sleeper/1"
    request = wire.SleepRequest(model_name=model(chosen), level=1, operation_id=operation)
    await cluster.runtimes.sleep(WARM_0, request)


@pytest.mark.parametrize(("chosen", "is_caught"), [("a", True), ("b", False)])
def test_room_is_made_by_the_engine_that_has_been_idle_longest(chosen, is_caught):
    told = broken_by(lambda cluster: used_and_put_to_sleep(cluster, "a", chosen))
    assert ("is put to sleep to make room, idle for" in told) is is_caught


def test_an_order_that_a_wrong_clock_explains_is_held_against_nobody():
    async def with_a_wrong_clock(cluster):
        cluster.leader.clock_off_s = 600.0
        await used_and_put_to_sleep(cluster, "a", "a")

    assert "is put to sleep to make room, idle for" not in broken_by(with_a_wrong_clock)


@pytest.mark.parametrize(
    ("lifetime_s", "what"),
    [(299.0, "is dropped, and it sleeps and was not woken"), (300.0, ""), (360.0, "stands for 31")],
)
def test_a_request_that_nobody_can_serve_stands_for_five_minutes(lifetime_s, what, monkeypatch):
    monkeypatch.setattr(waking, "LIFETIME_S", lifetime_s)

    async def asked_for(cluster):
        cluster.request_wake("warm-0", "sleeper")
        await cluster.run(370)

    told = broken_by(asked_for)
    assert what in told
    assert bool(told) is bool(what)


@pytest.mark.parametrize(("usable", "found"), [(1000, 1), (700, 0)])
def test_a_move_from_a_card_that_can_take_its_sleeper_back_is_called_off(usable, found):
    neighbour = make_claim("b", make_instance(limit=100))
    moving = make_claim("a", make_instance(InstancePhase.FAILED, reason="NoRoomToWake", limit=0))
    asleep = make_engine("a", EnginePhase.SLEEPING, limit=0, sleeping_footprint_bytes=50)
    pod = make_pod(snapshot=make_snapshot(asleep, make_engine("b", limit=100), usable=(usable,)))
    told = [s for s in at_rest.unsettled_figures(make_fleet(moving, neighbour, pod)) if "can take it back" in s]
    assert len(told) == found
    assert SEAT.total_bytes == 400


@pytest.mark.parametrize(("phase", "found"), [(InstancePhase.FAILED, 1), (InstancePhase.ACTIVE, 0)])
def test_nobody_stays_failed_whose_engine_runs(phase, found):
    pod = make_pod(snapshot=make_snapshot(make_engine("a", limit=100)))
    told = at_rest.unsettled_figures(make_fleet(make_claim("a", make_instance(phase, limit=100)), pod))
    assert len([s for s in told if s == "a is failed on warm-0, and its engine runs"]) == found

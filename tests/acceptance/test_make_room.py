"""Idle engines sleep so that another model finds room: for a sleeper that was asked for, or for a new claim."""

import pytest
from simulated import CARD_24, GIB, limits, model, reasons, simulated
from sleepers import (
    asked,
    calls,
    claim_uid,
    hear,
    lending,
    policy,
    route,
    seat_asleep,
    times,
    uid,
    until,
    when_route_turns,
)

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster.resource import PODS
from aibrix_operator.runtime_api.outcome import Refused
from aibrix_operator.sim.world import NAMESPACE


async def crowded(cluster, *, idle_s=(135, 75)):
    """1000 bytes; a and b serve and a sleeper, each 300+100. a has been idle for ``idle_s[0]`` seconds, b for [1]."""
    runtime = cluster.add_pod("warm-0", 1000, asleep_bytes=60)
    cluster.set_policy(lending())
    for claim in "ab":
        cluster.seat(claim, "warm-0", 300, 100, limit_bytes=170, running=1)
    seat_asleep(cluster, "waker", "warm-0", 300, 100, limit_bytes=0, asleep_bytes=60)
    await cluster.run(12)
    for seconds, claim in sorted(zip(idle_s, "ab", strict=True), reverse=True):
        runtime.engines[model(claim)].running = 0
        await cluster.run(seconds - (idle_s[1] if claim == "a" else 0))
    runtime.calls.clear()
    return runtime


# --- 29, 30


async def two_samples(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending())
    for claim in ("qwen3-0-6b", "qwen25-0-5b"):
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(20)
    return runtime


@pytest.mark.acceptance("29")
@simulated
async def test_mc29_a_lent_seat_is_given_away_and_made_free_again_when_its_sleeper_is_asked_for(cluster):
    runtime = await two_samples(cluster)
    runtime.sleep(model("qwen3-0-6b"), runtime.asleep_bytes)
    cluster.apply("fits-after-release", "12Gi", "1Gi")
    await cluster.run(15)
    assert cluster.status("fits-after-release").phase == ClaimPhase.ACTIVE
    heard = hear(cluster)
    runtime.engines[model("qwen25-0-5b")].running = 1
    cluster.request_wake("warm-0", "qwen3-0-6b")
    await cluster.run(10)
    assert cluster.condition("qwen3-0-6b", "Ready")[:2] == ("False", "WaitingForRoom")
    assert route(cluster, "warm-0", "qwen3-0-6b") == ("sleeping", 0, "WaitingForRoom")
    assert cluster.status("qwen3-0-6b").instances[0].reason == "WaitingForRoom"
    await until(cluster, lambda: cluster.status("qwen3-0-6b").phase is ClaimPhase.ACTIVE, 40)
    (told,) = [(n, m) for n, r, m in heard if r == "SleptToMakeRoom"]
    assert told[0] == "fits-after-release"
    assert told[1].startswith("model model-of-fits-after-release idle for ")
    assert told[1].endswith(
        "s; put to sleep on pod warm-0 to make room for model model-of-qwen3-0-6b; it holds 300.0 MiB asleep"
    )
    assert times(heard, "WaitingForRoom") == 1
    assert cluster.status("qwen25-0-5b").phase == ClaimPhase.ACTIVE
    cluster.delete_claim("fits-after-release")
    await cluster.run(15)
    assert [cluster.status(c).phase for c in ("qwen3-0-6b", "qwen25-0-5b")] == [ClaimPhase.ACTIVE] * 2


@pytest.mark.acceptance("30")
@simulated
async def test_mc30_room_is_made_for_a_new_claim_by_one_sleep(cluster):
    runtime = await two_samples(cluster)
    await cluster.run(31)
    runtime.calls.clear()
    heard = hear(cluster)
    cluster.apply("needs-room", "12Gi", "1Gi")
    await until(cluster, lambda: cluster.status("needs-room").phase is ClaimPhase.ACTIVE, 15)
    assert calls(runtime, "sleep") == [("sleep", model("qwen25-0-5b"), 0)]
    (slept,) = [c[3] for c in runtime.calls if c[0] == "sleep"]
    operation = f"make-room/{uid(cluster, 'warm-0')}/kvc_qwen25-0-5b/{claim_uid(cluster, 'needs-room')}/"
    assert slept.startswith(operation)
    needs, why = "which needs 13.0 GiB on a card", "to make room"
    assert [(n, m) for n, r, m in heard if r == "MakingRoom"] == [
        (
            "needs-room",
            f"no pod has room for this model, {needs}; model model-of-qwen25-0-5b was put to sleep on pod warm-0 {why}",
        )
    ]
    assert times(heard, "SleptToMakeRoom", "qwen25-0-5b") == 1
    assert times(heard, "KVLimitFailed") == 0
    assert cluster.condition("needs-room", "Scheduled") == ("True", "Placed", "placed on pod warm-0")
    cluster.delete_claim("needs-room")
    cluster.set_policy(None)
    cluster.request_wake("warm-0", "qwen25-0-5b")
    await cluster.run(20)
    assert [cluster.status(c).phase for c in ("qwen3-0-6b", "qwen25-0-5b")] == [ClaimPhase.ACTIVE] * 2


@pytest.mark.acceptance("30")
@simulated
async def test_mc30_while_room_is_made_the_condition_says_so_and_nobody_else_gets_it(cluster):
    runtime = await two_samples(cluster)
    await cluster.run(31)
    seen = []

    async def look(call):
        if call[0] == "sleep":
            seen.append(cluster.condition("needs-room", "Scheduled")[:2])
            cluster.apply("late", "11Gi", "1Gi")
            await cluster.run(0.5)
            seen.append(cluster.status("late").instances)

    runtime.before_call = look
    cluster.apply("needs-room", "12Gi", "1Gi")
    await cluster.run(15)
    assert seen[:2] == [("False", "MakingRoom"), ()]
    assert cluster.status("needs-room").phase == ClaimPhase.ACTIVE


# --- 35, 36


@pytest.mark.acceptance("35")
@simulated
async def test_mc35_a_crowded_card_puts_the_longest_idle_engine_to_sleep_and_then_wakes(cluster):
    runtime = await crowded(cluster)
    assert limits(cluster, "a", "b") == (170, 170)
    heard = hear(cluster)
    cluster.request_wake("warm-0", "waker")
    await until(cluster, lambda: bool(calls(runtime, "wake")), 12)
    assert calls(runtime, "sleep", "wake") == [("sleep", model("a"), 0), ("wake", model("waker"), 0)]
    told = [m for _, r, m in heard if r == "SleptToMakeRoom"]
    assert len(told) == 1
    assert told[0].startswith("model model-of-a idle for 2m")
    await cluster.run(5)
    assert cluster.status("waker").phase == ClaimPhase.ACTIVE
    assert cluster.status("b").phase == ClaimPhase.ACTIVE
    assert cluster.status("a").phase == ClaimPhase.SLEEPING


@pytest.mark.acceptance("35")
@simulated
async def test_mc35_while_a_wake_waits_for_room_the_card_stays_divided_among_those_awake(cluster):
    runtime = await crowded(cluster, idle_s=(20, 10))
    for claim in "ab":
        runtime.engines[model(claim)].running = 1
    cluster.request_wake("warm-0", "waker")
    await cluster.run(30)
    assert limits(cluster, "a", "b", "waker") == (170, 170, 0)
    assert calls(runtime, "sleep", "wake") == []
    assert "KVLimitFailed" not in [r for c in ("a", "b", "waker") for r in reasons(cluster, c)]


@pytest.mark.acceptance("35")
@pytest.mark.parametrize("case", ["reserve kept", "unmeasured", "not idle for long"])
@simulated
async def test_mc35_nobody_is_put_to_sleep_for_a_wake(cluster, case):
    runtime = await crowded(cluster, idle_s=(12, 6) if case == "not idle for long" else (125, 65))
    if case == "reserve kept":
        cluster.set_policy(policy(sleepAfterSeconds=3600))
    elif case == "unmeasured":
        runtime.engines[model("waker")].sleeping_footprint_bytes = None
    await cluster.run(2)
    cluster.request_wake("warm-0", "waker")
    await cluster.run(8)
    assert calls(runtime, "sleep", "wake") == []
    assert asked(cluster, "warm-0", "waker")


@pytest.mark.acceptance("35")
@simulated
async def test_mc35_room_is_made_for_the_oldest_request_and_the_later_ones_wait_behind_it(cluster):
    runtime = cluster.add_pod("warm-0", 1000, asleep_bytes=60)
    cluster.set_policy(lending())
    cluster.seat("awake", "warm-0", 500, 100, limit_bytes=200)
    seat_asleep(cluster, "old", "warm-0", 500, 100, limit_bytes=0, asleep_bytes=60)
    seat_asleep(cluster, "small", "warm-0", 150, 50, limit_bytes=0, asleep_bytes=60)
    await cluster.run(45)
    requests = {names.wake_annotation(c): f"2026-01-01T00:00:{s}Z" for c, s in (("old", 40), ("small", 41))}
    cluster.store.change(PODS, (NAMESPACE, "warm-0"), {"metadata": {"annotations": requests}})
    await cluster.run(60)
    # There was room for the small one all the time; it would have been taken from the one before it.
    assert calls(runtime, "sleep", "wake") == [
        ("sleep", model("awake"), 0),
        ("wake", model("old"), 0),
        ("wake", model("small"), 0),
    ]


@pytest.mark.acceptance("35")
@simulated
async def test_mc35_a_request_that_no_sleep_can_help_does_not_hold_up_the_ones_behind_it(cluster):
    runtime = cluster.add_pod("warm-0", 1000, asleep_bytes=60)
    cluster.set_policy(lending())
    cluster.seat("awake", "warm-0", 300, 100, limit_bytes=300, running=1)
    seat_asleep(cluster, "large", "warm-0", 800, 100, limit_bytes=0, asleep_bytes=60)
    seat_asleep(cluster, "small", "warm-0", 300, 100, limit_bytes=0, asleep_bytes=60)
    await cluster.run(12)
    cluster.request_wake("warm-0", "large")
    await cluster.run(3)
    cluster.request_wake("warm-0", "small")
    await cluster.run(5)
    assert calls(runtime, "sleep", "wake") == [("wake", model("small"), 0)]
    assert cluster.condition("large", "Ready")[1] == "WaitingForRoom"


@pytest.mark.acceptance("36")
@simulated
async def test_mc36_a_busy_neighbour_that_holds_lent_memory_keeps_it_until_it_has_been_idle(cluster):
    runtime = cluster.add_pod("warm-0", 1000, asleep_bytes=60)
    cluster.set_policy(lending())
    busy = cluster.seat("busy", "warm-0", 300, 100, limit_bytes=600, mapped_bytes=550, running=3)
    seat_asleep(cluster, "waker", "warm-0", 300, 100, limit_bytes=0, asleep_bytes=60)
    await cluster.run(12)
    cluster.request_wake("warm-0", "waker")
    await cluster.run(60)
    assert busy.limit_bytes >= 550
    assert calls(runtime, "sleep", "wake") == []
    busy.running = 0
    await cluster.run(25)
    assert calls(runtime, "sleep", "wake") == []
    await cluster.run(20)
    assert calls(runtime, "sleep", "wake") == [("sleep", model("busy"), 0), ("wake", model("waker"), 0)]


# --- holds


@pytest.mark.parametrize("cause", ["used", "refused"])
@simulated
async def test_a_sleep_that_fails_drops_the_hold_at_once(cluster, cause):
    runtime = await two_samples(cluster)
    await cluster.run(31)
    runtime.engines[model("qwen3-0-6b")].running = 1
    if cause == "used":
        engine = runtime.engines[model("qwen25-0-5b")]
        when_route_turns(cluster, "sleeping", lambda: setattr(engine, "running", 1))
    else:

        async def refuse(call):
            return Refused("still serving", 409) if call[0] == "sleep" else None

        runtime.before_call = refuse
    cluster.apply("needs-room", "12Gi", "1Gi")
    await cluster.run(6)
    pod_uid = uid(cluster, "warm-0")
    assert cluster.world.memory["default"].cards[pod_uid].hold is None
    cluster.apply("small", "8Gi", "1Gi")
    await cluster.run(6)
    assert cluster.status("small").phase == ClaimPhase.ACTIVE


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(None, id="deleted"),
        pytest.param({"perGPU": {"maximumFootprint": "0", "kvFloor": "1Gi"}}, id="no figures"),
        pytest.param({"engineConfig": {"args": {"--data-parallel-size": "2"}}}, id="no engine that we start"),
    ],
)
@simulated
async def test_a_claim_that_is_not_to_be_placed_any_more_while_room_is_made_for_it_leaves_the_engine_awake_and_no_hold(
    cluster, spec
):
    runtime = await two_samples(cluster)
    await cluster.run(31)

    def changes():
        if spec is None:
            cluster.delete_claim("needs-room")
        else:
            cluster.patch_claim("needs-room", {"spec": spec})

    when_route_turns(cluster, "sleeping", changes)
    cluster.apply("needs-room", "12Gi", "1Gi")
    await cluster.run(10)
    assert calls(runtime, "sleep") == []
    assert cluster.world.memory["default"].cards[uid(cluster, "warm-0")].hold is None
    assert route(cluster, "warm-0", "qwen25-0-5b") == ("active", 20001, "")


@simulated
async def test_a_hold_ends_after_two_minutes_and_the_claim_says_what_stands_in_its_way(cluster):
    runtime = await two_samples(cluster)
    await cluster.run(31)
    # The first sleeper frees too little, and its neighbour is busy from then on.
    runtime.asleep_bytes = 5 * GIB
    busy = runtime.engines[model("qwen3-0-6b")]
    when_route_turns(cluster, "sleeping", lambda: setattr(busy, "running", 1))
    cluster.apply("needs-room", "12Gi", "1Gi")
    await cluster.run(125)
    assert cluster.world.memory["default"].cards[uid(cluster, "warm-0")].hold is None
    assert cluster.condition("needs-room", "Scheduled")[:2] == ("False", "NoMatchingPods")
    cluster.apply("small", "4Gi", "1Gi")
    await cluster.run(5)
    assert cluster.status("small").phase == ClaimPhase.ACTIVE


@simulated
async def test_what_is_held_for_a_claim_is_not_dealt_out_as_kv(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24, asleep_bytes=GIB)
    cluster.set_policy(lending())
    for claim in "abc":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(50)
    runtime.sleep(model("c"), GIB)
    await cluster.run(35)
    runtime.calls.clear()
    (before,) = limits(cluster, "b")
    cluster.apply("needs-room", "14Gi", "1Gi")
    await cluster.run(30)
    assert cluster.status("needs-room").phase == ClaimPhase.ACTIVE
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    assert all(limit <= before for _, m, limit in calls(runtime, "kv-limit") if m == model("b"))


@simulated
async def test_a_sleeper_that_is_asked_for_comes_before_a_claim_that_room_is_held_for(cluster):
    runtime = await two_samples(cluster)
    await cluster.run(31)
    runtime.engines[model("qwen3-0-6b")].running = 1
    when_route_turns(
        cluster,
        "sleeping",
        lambda: setattr(runtime, "asleep_bytes", 5 * GIB),
    )
    cluster.apply("needs-room", "12Gi", "1Gi")
    await until(cluster, lambda: cluster.status("qwen25-0-5b").phase is ClaimPhase.SLEEPING, 10)
    cluster.request_wake("warm-0", "qwen25-0-5b")
    await cluster.run(10)
    assert cluster.status("qwen25-0-5b").phase == ClaimPhase.ACTIVE
    assert cluster.status("needs-room").phase == ClaimPhase.PENDING


@simulated
async def test_a_restart_while_room_is_made_places_the_claim_all_the_same(cluster):
    runtime = await two_samples(cluster)
    await cluster.run(31)
    cluster.apply("needs-room", "12Gi", "1Gi")
    await until(cluster, lambda: bool(calls(runtime, "sleep")), 10)
    await cluster.stop_controller()
    cluster.start_controller()
    await cluster.run(10)
    assert cluster.status("needs-room").phase == ClaimPhase.ACTIVE
    assert len(calls(runtime, "sleep")) == 1


@simulated
async def test_room_is_made_for_the_oldest_claim_that_can_be_helped(cluster):
    runtime = await two_samples(cluster)
    await cluster.run(31)
    runtime.engines[model("qwen3-0-6b")].running = 1
    await cluster.run(10)
    cluster.apply("hopeless", "23Gi", "900Mi")
    await cluster.run(1)
    cluster.apply("first", "12Gi", "1Gi")
    await cluster.run(1)
    cluster.apply("second", "12Gi", "1Gi")
    await cluster.run(15)
    assert cluster.status("first").phase == ClaimPhase.ACTIVE
    assert cluster.status("second").phase == ClaimPhase.PENDING
    assert cluster.status("hopeless").phase == ClaimPhase.PENDING


@simulated
async def test_a_hold_that_ends_lets_the_claims_that_it_kept_waiting_try_at_once(cluster):
    runtime = await two_samples(cluster)
    await cluster.run(31)
    cluster.apply("hopeless", "23Gi", "900Mi")
    await cluster.run(0.5)
    cluster.apply("patient", "12Gi", "1Gi")
    await cluster.run(0.5)
    assert cluster.condition("patient", "Scheduled")[1] == "NoMatchingPods"
    runtime.engines[model("qwen3-0-6b")].running = 1
    cluster.delete_claim("hopeless")
    await cluster.run(5)
    assert cluster.status("patient").phase == ClaimPhase.ACTIVE


@simulated
async def test_no_room_is_made_in_a_pool_that_keeps_reserves(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy('{"lifecycle":{"sleepAfterSeconds":3600}}')
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(50)
    cluster.apply("needs-room", "12Gi", "1Gi")
    await cluster.run(60)
    assert calls(runtime, "sleep") == []
    assert cluster.condition("needs-room", "Scheduled")[1] == "NoMatchingPods"


@simulated
async def test_an_sglang_engine_is_not_put_to_sleep_to_make_room(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending())
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi", engine="sglang")
    await cluster.run(50)
    cluster.apply("needs-room", "12Gi", "1Gi")
    await cluster.run(60)
    assert calls(runtime, "sleep") == []

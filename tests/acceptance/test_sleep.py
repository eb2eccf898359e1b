"""Idle engines sleep by their pool's policy, and whoever is used in between stays awake."""

import asyncio
import itertools

import pytest
from simulated import CARD_24, GIB, actions, limits, model, reasons, simulated
from sleepers import calls, hear, lending, policy, route, seat_asleep, times, uid, until, when_route_turns

from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster import errors
from aibrix_operator.runtime_api.outcome import Unknown
from aibrix_operator.runtime_api.wire import EnginePhase

AFTER_60_S = policy(sleepAfterSeconds=60)


async def two_serving(cluster, the_policy=AFTER_60_S, **runtime):
    """Claims a and b, 6+1 GiB each, served on one card of 24 GiB."""
    pod = cluster.add_pod("warm-0", CARD_24, **runtime)
    cluster.set_policy(the_policy)
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(15)
    assert [cluster.status(c).phase for c in "ab"] == [ClaimPhase.ACTIVE] * 2
    pod.calls.clear()
    return pod


async def keep_busy(cluster, runtime, claim, seconds):
    """One request is answered every five seconds."""
    for _ in range(int(seconds // 5)):
        runtime.engines[model(claim)].finished += 1
        await cluster.run(5)


@pytest.mark.acceptance("27")
@simulated
async def test_mc27_an_idle_engine_sleeps_and_its_neighbour_gets_what_it_does_not_need_asleep(cluster):
    runtime = await two_serving(cluster)
    await keep_busy(cluster, runtime, "b", 40)
    assert calls(runtime, "sleep") == []
    await keep_busy(cluster, runtime, "b", 60)
    assert calls(runtime, "sleep") == [("sleep", model("a"), 0)]
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    assert cluster.status("a").ready_replicas == 0
    assert cluster.condition("a", "Ready")[:2] == ("False", "EngineSleeping")
    assert route(cluster, "warm-0", "a") == ("sleeping", 0, "")
    assert runtime.engines[model("a")].sleeping_footprint_bytes == 314_572_800
    assert cluster.events("Sleeping") == [
        ("Sleeping", "model model-of-a idle past 60s; sleeping engine on pod warm-0; it holds 300.0 MiB asleep")
    ]
    assert cluster.status("b").phase == ClaimPhase.ACTIVE
    assert limits(cluster, "a", "b") == (GIB, 11 * GIB)
    assert [runtime.engines[model(c)].limit_bytes for c in "ab"] == [GIB, 11 * GIB]


@pytest.mark.acceptance("27")
@simulated
async def test_mc27_the_route_goes_before_the_sleep_and_the_operation_names_the_idleness(cluster):
    runtime = await two_serving(cluster)
    seen = []

    async def look(call):
        seen.append((call[0], route(cluster, "warm-0", "a")))

    runtime.before_call = look
    await keep_busy(cluster, runtime, "b", 100)
    assert seen[0] == ("sleep", ("sleeping", 0, ""))
    operation = next(c[3] for c in runtime.calls if c[0] == "sleep")
    assert operation.startswith(f"pool-policy-sleep/default/pool-a/{uid(cluster, 'warm-0')}/kvc_a/")
    assert operation.rpartition("/")[2].isdecimal()


@simulated
async def test_idle_time_begins_when_the_last_request_ends_however_long_readings_said_the_same(cluster):
    """A request that lasts changes no figure, and one whose client leaves need not be counted: no pass saw it last."""
    runtime = await two_serving(cluster)
    for engine in runtime.engines.values():
        engine.running = 1
    await cluster.run(300)
    for engine in runtime.engines.values():
        engine.running = 0
    await cluster.run(55)
    assert calls(runtime, "sleep") == []
    await cluster.run(30)
    assert sorted(calls(runtime, "sleep")) == [("sleep", model("a"), 0), ("sleep", model("b"), 0)]


@pytest.mark.acceptance("32")
@pytest.mark.parametrize("what", ["running", "waiting", "finished"])
@simulated
async def test_mc32_a_request_between_the_idle_reading_and_the_sleep_keeps_the_engine_awake(cluster, what):
    runtime = await two_serving(cluster)
    engine = runtime.engines[model("a")]
    engine.finished = 7
    await cluster.run(11)
    when_route_turns(cluster, "sleeping", lambda: setattr(engine, what, getattr(engine, what) + 1))
    await keep_busy(cluster, runtime, "b", 80)
    assert calls(runtime, "sleep") == []
    assert route(cluster, "warm-0", "a") == ("active", engine.port, "")
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert "Sleeping" not in reasons(cluster, "a")
    engine.running = engine.waiting = 0
    await keep_busy(cluster, runtime, "b", 40)
    assert calls(runtime, "sleep") == []  # its idle time began anew
    await keep_busy(cluster, runtime, "b", 45)
    assert calls(runtime, "sleep") == [("sleep", model("a"), 0)]


@pytest.mark.acceptance("32")
@simulated
async def test_mc32_an_engine_whose_metrics_cannot_be_read_at_the_second_look_stays_awake(cluster):
    runtime = await two_serving(cluster)
    engine = runtime.engines[model("a")]
    when_route_turns(cluster, "sleeping", lambda: setattr(engine, "metrics_observed", False))
    await keep_busy(cluster, runtime, "b", 120)
    assert calls(runtime, "sleep") == []
    assert route(cluster, "warm-0", "a") == ("active", engine.port, "")


@simulated
async def test_a_runtime_that_is_read_anew_while_its_engine_is_on_its_way_to_sleep_brings_no_route_back(cluster):
    """Nothing is known of the engine meanwhile, neither that it was used nor that it is idle."""
    runtime = await two_serving(cluster)
    await keep_busy(cluster, runtime, "b", 40)

    async def slow():
        await asyncio.sleep(2.0)

    def breaks_off():
        runtime.before_snapshot = slow
        runtime.restart_sidecar()
        cluster.later(1.0, lambda: cluster.patch_claim("b", {"metadata": {"labels": {"any": "change"}}}))

    when_route_turns(cluster, "sleeping", breaks_off)
    states = []
    for _ in range(400):
        await cluster.run(0.1)
        states.append(route(cluster, "warm-0", "a")[0])
    assert calls(runtime, "sleep") == [("sleep", model("a"), 0)]
    assert [state for state, _ in itertools.groupby(states)] == ["active", "sleeping"]


@pytest.mark.acceptance("32")
@simulated
async def test_mc32_a_runtime_that_still_serves_refuses_and_the_route_comes_back(cluster):
    runtime = await two_serving(cluster)
    engine = runtime.engines[model("a")]

    async def serve(call):
        engine.running = 1

    runtime.before_call = serve
    await keep_busy(cluster, runtime, "b", 80)
    assert calls(runtime, "sleep") == [("sleep", model("a"), 0)]
    assert engine.phase is EnginePhase.ACTIVE
    assert route(cluster, "warm-0", "a") == ("active", engine.port, "")
    assert reasons(cluster, "a").count("Sleeping") == 0
    assert reasons(cluster, "a").count("Unhealthy") == 0


@pytest.mark.acceptance("32")
@simulated
async def test_mc32_a_sleep_whose_answer_is_lost_is_found_out_by_reading(cluster):
    runtime = await two_serving(cluster)
    runtime.after_call = lambda call: Unknown("the answer is lost") if call[0] == "sleep" else None
    await keep_busy(cluster, runtime, "b", 80)
    assert calls(runtime, "sleep") == [("sleep", model("a"), 0)]
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    assert route(cluster, "warm-0", "a") == ("sleeping", 0, "")
    assert reasons(cluster, "a").count("Sleeping") == 1


@pytest.mark.acceptance("33")
@simulated
async def test_mc33_after_a_wake_the_idle_time_begins_when_the_engine_serves(cluster):
    runtime = await two_serving(cluster, wake_s=40.0)
    await keep_busy(cluster, runtime, "b", 90)
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    cluster.request_wake("warm-0", "a")
    await keep_busy(cluster, runtime, "b", 95)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE  # 95 s after the request, some 53 s after it serves
    assert len(calls(runtime, "sleep")) == 1
    await keep_busy(cluster, runtime, "b", 30)
    assert len(calls(runtime, "sleep")) == 2


@pytest.mark.acceptance("33")
@simulated
async def test_mc33_a_controller_that_sees_an_engine_for_the_first_time_takes_it_for_busy(cluster):
    runtime = await two_serving(cluster)
    await keep_busy(cluster, runtime, "b", 40)
    await cluster.stop_controller()
    cluster.start_controller()
    await keep_busy(cluster, runtime, "b", 55)
    assert calls(runtime, "sleep") == []
    await keep_busy(cluster, runtime, "b", 30)
    assert calls(runtime, "sleep") == [("sleep", model("a"), 0)]


@pytest.mark.acceptance("33")
@pytest.mark.parametrize("unread", "ab")
@simulated
async def test_mc33_metrics_that_cannot_be_read_put_nobody_of_the_card_to_sleep(cluster, unread):
    runtime = await two_serving(cluster)
    runtime.engines[model(unread)].metrics_observed = False
    await cluster.run(300)
    assert calls(runtime, "sleep") == []
    runtime.engines[model(unread)].metrics_observed = True
    await cluster.run(200)
    assert sorted(calls(runtime, "sleep")) == [("sleep", model("a"), 0), ("sleep", model("b"), 0)]


@pytest.mark.acceptance("33")
@simulated
async def test_mc33_a_counter_that_went_down_is_activity(cluster):
    runtime = await two_serving(cluster)
    engine = runtime.engines[model("a")]
    engine.finished = 50
    await cluster.run(50)
    engine.finished = 3
    await keep_busy(cluster, runtime, "b", 50)
    assert calls(runtime, "sleep") == []


@simulated
async def test_an_sglang_engine_is_never_put_to_sleep(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(AFTER_60_S)
    cluster.apply("a", "6Gi", "1Gi", engine="sglang")
    cluster.apply("b", "6Gi", "1Gi")
    await cluster.run(200)
    assert calls(runtime, "sleep") == [("sleep", model("b"), 0)]


@simulated
async def test_engines_of_one_card_go_to_sleep_one_after_the_other(cluster):
    runtime = await two_serving(cluster)
    under_way = []

    async def look(call):
        if call[0] == "sleep":
            under_way.append([e.model for e in runtime.engines.values() if e.phase is EnginePhase.SLEEPING])

    runtime.before_call = look
    await cluster.run(120)
    assert under_way == [[], [model("a")]]


@pytest.mark.acceptance("27")
@simulated
async def test_mc27_an_engine_put_to_sleep_past_the_operator_reads_sleeping_too(cluster):
    runtime = await two_serving(cluster, None)
    runtime.sleep(model("a"), 256 << 20)
    await cluster.run(5)
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    assert cluster.events("Sleeping") == [
        (
            "Sleeping",
            "model model-of-a is sleeping on pod warm-0 and marked non-routable; it holds 256.0 MiB asleep",
        )
    ]
    assert limits(cluster, "a", "b") == (GIB, 11 * GIB)


@pytest.mark.acceptance("40")
@simulated
async def test_mc40_a_sleeper_that_holds_more_than_its_seat_is_charged_what_it_holds(cluster):
    cluster.add_pod("warm-0", 1000 * GIB)
    cluster.set_policy(lending())
    seat_asleep(cluster, "a", "warm-0", 300 * GIB, 100 * GIB, limit_bytes=0, asleep_bytes=500 * GIB)
    cluster.apply("large", "500Gi", "10Gi")
    await cluster.run(5)
    assert "can offer at most 500.0 GiB" in cluster.condition("large", "Scheduled")[2]
    cluster.apply("fits", "400Gi", "100Gi")
    await cluster.run(5)
    assert cluster.status("fits").phase == ClaimPhase.ACTIVE


@simulated
async def test_in_a_pool_that_lends_a_sleeper_falls_to_what_it_maps_and_its_neighbour_gets_the_rest(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending())
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(15)
    runtime.sleep(model("a"), GIB)
    await cluster.run(5)
    assert limits(cluster, "a", "b") == (0, 17 * GIB)
    assert [runtime.engines[model(c)].limit_bytes for c in "ab"] == [0, 17 * GIB]


@simulated
async def test_a_sleeper_that_cannot_be_measured_keeps_its_reserve_and_says_so_once_per_sleep(cluster):
    runtime = await two_serving(cluster, lending(), asleep_bytes=None)
    heard = hear(cluster)
    runtime.sleep(model("a"), None)
    await cluster.run(60)
    unknown = "what its engine holds asleep could not be measured"
    assert cluster.events("SleepingFootprintUnknown") == [
        ("SleepingFootprintUnknown", f"model model-of-a sleeps on pod warm-0 and keeps its wake reserve: {unknown}")
    ]
    assert times(heard, "SleepingFootprintUnknown") == 1
    assert limits(cluster, "a") == (GIB,)
    assert cluster.events("Sleeping")[0][1].endswith("; what it holds asleep could not be measured")
    runtime.wake(model("a"))
    await cluster.run(20)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    runtime.sleep(model("a"), None)
    await cluster.run(60)
    assert times(heard, "SleepingFootprintUnknown") == 2


@simulated
async def test_a_policy_taken_away_while_the_route_is_off_keeps_the_engine_awake(cluster):
    runtime = await two_serving(cluster)
    when_route_turns(cluster, "sleeping", lambda: cluster.set_policy(None))
    await keep_busy(cluster, runtime, "b", 100)
    assert calls(runtime, "sleep") == []
    assert route(cluster, "warm-0", "a") == ("active", runtime.engines[model("a")].port, "")


@simulated
async def test_a_controller_that_starts_anew_while_the_route_is_off_puts_it_back(cluster):
    runtime = await two_serving(cluster)
    engine = runtime.engines[model("a")]
    for _ in range(200):
        if route(cluster, "warm-0", "a")[0] == "sleeping":
            break
        runtime.engines[model("b")].finished += 1
        await cluster.run(0.5)
    await cluster.stop_controller()
    cluster.start_controller()
    await cluster.run(3)
    assert route(cluster, "warm-0", "a") == ("active", engine.port, "")
    assert calls(runtime, "sleep") == []


@simulated
async def test_a_claim_deleted_on_its_way_to_sleep_drains_and_goes(cluster):
    runtime = await two_serving(cluster)
    when_route_turns(cluster, "sleeping", lambda: cluster.delete_claim("a"))
    await keep_busy(cluster, runtime, "b", 120)
    assert calls(runtime, "sleep") == []
    assert not cluster.exists("a")
    assert actions(runtime)[0] == ("deactivate", model("a"), 0)


@simulated
async def test_the_event_of_a_sleep_says_why_even_when_the_status_write_meets_a_conflict(cluster):
    runtime = await two_serving(cluster, asleep_bytes=None)
    cluster.set_policy(policy(sleepAfterSeconds=60, noWakeReserveWhileAsleep=True))
    refused, heard = [], hear(cluster)

    def conflict(verb, resource, name, body):
        if verb == "status" and body["status"]["phase"] == "Sleeping" and len(refused) < 2:
            refused.append(name)
            return errors.Conflict("HTTP 409: modified", status=409)
        return None

    cluster.store.fault = conflict
    await keep_busy(cluster, runtime, "b", 100)
    assert refused == ["a", "a"]
    assert [m for _, m in cluster.events("Sleeping")] == [
        "model model-of-a idle past 60s; sleeping engine on pod warm-0; what it holds asleep could not be measured"
    ]
    assert times(heard, "Sleeping") == times(heard, "SleepingFootprintUnknown") == 1


@simulated
async def test_a_pod_that_goes_while_its_engine_falls_asleep_is_forgotten_and_the_claim_placed_again(cluster):
    runtime = await two_serving(cluster)
    when_route_turns(cluster, "sleeping", lambda: cluster.delete_pod("warm-0"))
    await keep_busy(cluster, runtime, "b", 80)
    assert cluster.status("a").phase == ClaimPhase.PENDING
    other = cluster.add_pod("warm-1", CARD_24)
    await until(cluster, lambda: cluster.status("a").phase is ClaimPhase.ACTIVE, 30)
    assert ("activate", model("a"), 0) in actions(other)

"""Requests wake sleeping engines: once each, oldest first, their seat free and their card divided before the call."""

import pytest
from simulated import CARD_24, GIB, limits, model, reasons, simulated
from sleepers import (
    asked,
    calls,
    claim_uid,
    hear,
    lending,
    one_asleep,
    policy,
    restart,
    route,
    times,
    uid,
    until,
    when_route_turns,
)

from aibrix_operator.api import names
from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import PODS
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.store import wall
from aibrix_operator.sim.world import NAMESPACE

# --- 28


@pytest.mark.acceptance("28")
@simulated
async def test_mc28_a_request_wakes_the_sleeper_once_and_its_annotation_goes_when_it_serves(cluster):
    runtime = await one_asleep(cluster)
    heard = hear(cluster)
    at = rfc3339(wall())
    cluster.request_wake("warm-0", "a", at)
    took_s = await until(cluster, lambda: cluster.status("a").phase is ClaimPhase.ACTIVE, 10)
    assert took_s <= 4
    await until(cluster, lambda: not asked(cluster, "warm-0", "a"), 1)
    await cluster.run(10)
    (wake,) = [c for c in runtime.calls if c[0] == "wake"]
    assert wake[1] == model("a")
    assert wake[3] == f"controller-wake/{uid(cluster, 'warm-0')}/{claim_uid(cluster, 'a')}/{at}"
    assert calls(runtime, "activate", "deactivate") == []
    assert [(r, m) for n, r, m in heard if n == "a" and r in ("Waking", "Woken", "Activated")] == [
        ("Waking", f"model model-of-a is waking on pod warm-0, as asked at {at}"),
        ("Woken", "model model-of-a woke and is routable on pod warm-0:20000"),
    ]
    assert route(cluster, "warm-0", "a") == ("active", 20000, "")
    assert limits(cluster, "a", "b") == (6 * GIB, 6 * GIB)


@simulated
async def test_two_sleeps_within_a_second_of_requests_are_two_wakes(cluster):
    """Requests are dated in whole seconds: one that follows a served one at once may carry the same date."""
    runtime = await one_asleep(cluster)
    at = rfc3339(wall())
    for _ in range(2):
        cluster.request_wake("warm-0", "a", at)
        await until(cluster, lambda: cluster.status("a").phase is ClaimPhase.ACTIVE, 10)
        await until(cluster, lambda: not asked(cluster, "warm-0", "a"), 1)
        runtime.sleep(model("a"), runtime.asleep_bytes)
        await until(cluster, lambda: cluster.status("a").phase is ClaimPhase.SLEEPING, 10)
    assert len({call[3] for call in runtime.calls if call[0] == "wake"}) == 2


@pytest.mark.acceptance("28")
@simulated
async def test_mc28_however_many_passes_see_a_slow_wake_it_is_one_operation(cluster):
    runtime = await one_asleep(cluster, wake_s=45.0)
    cluster.request_wake("warm-0", "a")
    for n in range(60):
        cluster.patch_claim("b", {"metadata": {"labels": {"look": str(n)}}})
        await cluster.run(1)
    assert len(calls(runtime, "wake")) == 1
    assert reasons(cluster, "a").count("Woken") == 1
    assert not asked(cluster, "warm-0", "a")


@pytest.mark.acceptance("28")
@simulated
async def test_mc28_a_controller_that_restarts_in_the_middle_of_a_wake_finishes_it(cluster):
    runtime = await one_asleep(cluster, wake_s=20.0)
    cluster.request_wake("warm-0", "a")
    await until(cluster, lambda: bool(calls(runtime, "wake")), 5)
    await restart(cluster)
    await cluster.run(25)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert len({c[3] for c in runtime.calls if c[0] == "wake"}) == 1
    assert "Woken" in reasons(cluster, "a")
    assert not asked(cluster, "warm-0", "a")


@pytest.mark.acceptance("28")
@simulated
async def test_mc28_a_pod_that_goes_in_the_middle_of_a_wake_has_the_claim_placed_elsewhere(cluster):
    runtime = await one_asleep(cluster, wake_s=20.0)
    cluster.request_wake("warm-0", "a")
    await until(cluster, lambda: bool(calls(runtime, "wake")), 5)
    cluster.delete_pod("warm-0")
    cluster.add_pod("warm-1", CARD_24)
    await cluster.run(20)
    assert [cluster.status(c).phase for c in "ab"] == [ClaimPhase.ACTIVE] * 2


@pytest.mark.acceptance("28")
@simulated
async def test_mc28_a_claim_deleted_in_the_middle_of_a_wake_leaves_nothing(cluster):
    runtime = await one_asleep(cluster, wake_s=20.0)
    cluster.request_wake("warm-0", "a")
    await until(cluster, lambda: bool(calls(runtime, "wake")), 5)
    cluster.delete_claim("a")
    await cluster.run(10)
    assert not cluster.exists("a")
    assert model("a") not in runtime.engines
    assert [k for k in cluster.annotations("warm-0") if k.endswith("/a")] == []


@pytest.mark.acceptance("28")
@simulated
async def test_mc28_conflicts_at_every_write_only_delay_a_wake(cluster):
    runtime = await one_asleep(cluster)
    refused = set()

    def once(verb, resource, name, body):
        key = (verb, name, str(body)[:200])
        if key in refused:
            return None
        refused.add(key)
        return errors.Conflict("HTTP 409: modified", status=409)

    cluster.store.fault = once
    cluster.request_wake("warm-0", "a")
    await until(cluster, lambda: cluster.status("a").phase is ClaimPhase.ACTIVE, 30)
    await until(cluster, lambda: not asked(cluster, "warm-0", "a"), 10)
    assert len(calls(runtime, "wake")) == 1
    assert reasons(cluster, "a").count("Woken") == 1


@pytest.mark.acceptance("28")
@simulated
async def test_mc28_an_engine_asked_for_while_its_sleep_is_under_way_sleeps_and_wakes(cluster):
    runtime = await one_asleep(cluster, policy(sleepAfterSeconds=60))
    runtime.wake(model("a"))
    await cluster.run(5)

    async def ask(call):
        if call[:2] == ("sleep", model("a")):
            cluster.request_wake("warm-0", "a")

    runtime.before_call = ask
    await until(cluster, lambda: bool(calls(runtime, "wake")), 100)
    await cluster.run(5)
    assert calls(runtime, "sleep", "wake")[-2:] == [("sleep", model("a"), 0), ("wake", model("a"), 0)]
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert not asked(cluster, "warm-0", "a")


@pytest.mark.acceptance("28")
@simulated
async def test_mc28_two_requests_of_one_card_are_carried_out_one_after_the_other_oldest_first(cluster):
    runtime = await one_asleep(cluster, wake_s=5.0)
    runtime.sleep(model("b"), runtime.asleep_bytes)
    await cluster.run(5)
    under_way = []

    async def look(call):
        if call[0] == "wake":
            under_way.append([e.model for e in runtime.engines.values() if e.phase is EnginePhase.BOOTING])

    runtime.before_call = look
    requests = {names.wake_annotation(c): f"2026-01-01T00:00:{s}Z" for c, s in (("a", 30), ("b", 29))}
    cluster.store.change(PODS, (NAMESPACE, "warm-0"), {"metadata": {"annotations": requests}})
    await cluster.run(30)
    assert calls(runtime, "wake") == [("wake", model("b"), 0), ("wake", model("a"), 0)]
    assert under_way == [[], []]
    assert [cluster.status(c).phase for c in "ab"] == [ClaimPhase.ACTIVE] * 2


# --- changes in the middle


@simulated
async def test_a_larger_declaration_of_a_sleeper_that_no_longer_fits_evicts_nobody_and_its_request_waits(cluster):
    runtime = await one_asleep(cluster)
    cluster.patch_claim("a", {"spec": {"perGPU": {"maximumFootprint": "18Gi", "kvFloor": "1Gi"}}})
    await cluster.run(5)
    heard = hear(cluster)
    cluster.request_wake("warm-0", "a")
    await cluster.run(60)
    assert calls(runtime, "wake", "deactivate", "sleep") == []
    assert cluster.status("b").phase == ClaimPhase.ACTIVE
    assert cluster.condition("a", "Ready")[:2] == ("False", "WaitingForRoom")
    assert route(cluster, "warm-0", "a") == ("sleeping", 0, "WaitingForRoom")
    assert times(heard, "WaitingForRoom") == 1
    cluster.patch_claim("a", {"spec": {"perGPU": {"maximumFootprint": "6Gi", "kvFloor": "1Gi"}}})
    await cluster.run(10)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@simulated
async def test_seats_that_were_given_away_are_not_woken_into_when_the_pool_stops_lending(cluster):
    runtime = await one_asleep(cluster, lending())
    cluster.apply("c", "10Gi", "1Gi")
    await cluster.run(15)
    assert cluster.status("c").phase == ClaimPhase.ACTIVE
    cluster.set_policy(policy(sleepAfterSeconds=3600))
    cluster.request_wake("warm-0", "a")
    await cluster.run(30)
    assert calls(runtime, "wake") == []
    assert cluster.condition("a", "Ready")[:2] == ("False", "WaitingForRoom")
    cluster.delete_claim("c")
    await cluster.run(30)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@simulated
async def test_a_pool_that_begins_to_lend_while_engines_sleep_gives_their_seats_away_and_takes_them_back(cluster):
    await one_asleep(cluster)
    cluster.apply("c", "10Gi", "1Gi")
    await cluster.run(5)
    assert cluster.status("c").phase == ClaimPhase.PENDING
    cluster.set_policy(lending())
    await cluster.run(30)
    assert cluster.status("c").phase == ClaimPhase.ACTIVE
    cluster.delete_claim("c")
    await cluster.run(10)
    cluster.request_wake("warm-0", "a")
    await cluster.run(10)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("45")
@simulated
async def test_mc45_a_controller_restart_with_one_waiting_one_asleep_and_asked_for_and_one_active(cluster):
    runtime = await one_asleep(cluster)
    cluster.apply("waits", "30Gi", "1Gi")
    cluster.apply("later", "9Gi", "2Gi")
    await cluster.run(65)
    await cluster.stop_controller()
    records = limits(cluster, "a", "b")
    runtime.calls.clear()
    cluster.request_wake("warm-0", "a")
    cluster.add_pod("warm-1", CARD_24)
    cluster.start_controller()
    await cluster.run(1)
    assert cluster.status("later").instances[0].pod == "warm-1"  # tried at once
    await cluster.run(7)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert cluster.status("b").phase == ClaimPhase.ACTIVE
    assert calls(runtime, "activate", "deactivate", "sleep") == []
    assert records == (GIB, 11 * GIB)
    assert "Unhealthy" not in reasons(cluster, "b")


@simulated
async def test_wake_requests_of_claims_that_are_not_there_are_taken_off(cluster):
    await one_asleep(cluster)
    annotations = {names.wake_annotation("nobody"): rfc3339(wall())}
    cluster.store.change(PODS, (NAMESPACE, "warm-0"), {"metadata": {"annotations": annotations}})
    await cluster.run(2)
    assert not asked(cluster, "warm-0", "nobody")


@simulated
async def test_an_engine_on_its_way_to_sleep_is_left_awake_when_it_is_asked_for(cluster):
    runtime = await one_asleep(cluster, policy(sleepAfterSeconds=60))
    when_route_turns(cluster, "sleeping", lambda: cluster.request_wake("warm-0", "b"))
    await cluster.run(90)
    assert calls(runtime, "sleep") == []
    assert cluster.status("b").phase == ClaimPhase.ACTIVE
    assert not asked(cluster, "warm-0", "b")

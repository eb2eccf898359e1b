"""A sleeper whose seat was given away, and whose engine comes back awake, is put to sleep again if it has no room."""

import pytest
from simulated import CARD_24, GIB, limits, model, simulated
from sleepers import calls, lending, policy, restart, route, seat_asleep, until

from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.runtime_api.outcome import Unknown
from aibrix_operator.runtime_api.wire import EnginePhase


async def a_lender_and_a_guest(cluster, guest="16Gi"):
    """``lender`` sleeps on the only card, and ``guest`` has taken its place."""
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending(sleep_after_s=30))
    cluster.apply("lender", "12Gi", "1Gi")
    await until(cluster, lambda: cluster.status("lender").phase == ClaimPhase.SLEEPING, 90)
    cluster.set_policy(lending())
    cluster.apply("guest", guest, "1Gi")
    await until(cluster, lambda: cluster.status("guest").phase == ClaimPhase.ACTIVE, 20)
    return runtime


async def set_reserving(cluster):
    """From now on sleepers keep their seats."""
    cluster.set_policy(policy(sleepAfterSeconds=3600))


def wake_by_hand(runtime):
    """Somebody wakes the sleeper at its own API."""
    runtime.engines[model("lender")].phase = EnginePhase.ACTIVE


@simulated
async def test_a_sleeper_woken_without_room_is_put_to_sleep_again(cluster):
    runtime = await a_lender_and_a_guest(cluster)
    wake_by_hand(runtime)
    await cluster.run(25)
    assert runtime.engines[model("lender")].phase is EnginePhase.SLEEPING
    assert cluster.status("lender").phase == ClaimPhase.SLEEPING
    assert cluster.status("guest").phase == ClaimPhase.ACTIVE


@simulated
async def test_a_sleeper_woken_with_room_beside_its_neighbours_stays_awake(cluster):
    runtime = await a_lender_and_a_guest(cluster, guest="6Gi")
    asleep_before = len(calls(runtime, "sleep"))
    wake_by_hand(runtime)
    await cluster.run(60)
    assert cluster.status("lender").phase == ClaimPhase.ACTIVE
    assert len(calls(runtime, "sleep")) == asleep_before


@pytest.mark.parametrize("state", [{"running": 1}, {"metrics_observed": False}], ids=["busy", "unreadable"])
@simulated
async def test_one_that_answers_a_request_is_not_put_to_sleep(cluster, state):
    runtime = await a_lender_and_a_guest(cluster)
    for field, value in state.items():
        setattr(runtime.engines[model("lender")], field, value)
    wake_by_hand(runtime)
    await cluster.run(25)
    assert runtime.engines[model("lender")].phase is EnginePhase.ACTIVE
    assert cluster.status("guest").instances[0].kv_limit_bytes <= CARD_24 - 16 * GIB


@simulated
async def test_an_engine_that_never_slept_is_not_put_to_sleep_because_its_claim_is_declared_larger(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24, boot_s=10.0)
    cluster.set_policy(lending())
    cluster.apply("first", "12Gi", "1Gi")
    await until(cluster, lambda: cluster.status("first").phase == ClaimPhase.ACTIVE, 20)
    cluster.apply("second", "4Gi", "1Gi")
    await cluster.run(5)
    cluster.patch_claim("second", {"spec": {"perGPU": {"maximumFootprint": "12Gi", "kvFloor": "10Gi"}}})
    await cluster.run(60)
    assert calls(runtime, "sleep") == []
    assert cluster.status("second").phase == ClaimPhase.ACTIVE


@simulated
async def test_a_sleeper_that_kept_pages_mapped_and_crashes_is_put_to_sleep_again_too(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending())
    cluster.seat("guest", "warm-0", 16 * GIB, 1 * GIB, limit_bytes=6 * GIB)
    kept = {"limit_bytes": GIB // 4, "mapped_bytes": GIB // 4, "asleep_bytes": GIB}
    seat_asleep(cluster, "lender", "warm-0", 12 * GIB, 1 * GIB, **kept)
    await cluster.run(25)
    runtime.crash(model("lender"), 2.0)
    await cluster.run(25)
    assert calls(runtime, "sleep") == [("sleep", model("lender"), 0)]
    assert runtime.engines[model("lender")].phase is EnginePhase.SLEEPING


@pytest.mark.parametrize(("word", "sleeps"), [(None, 1), (False, 0)], ids=["an older runtime", "it says it cannot"])
@simulated
async def test_a_sleeper_of_another_kind_can_sleep_again_unless_its_runtime_denies_it(cluster, word, sleeps):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending())
    cluster.apply("lender", "12Gi", "1Gi", engine="sglang")
    await until(cluster, lambda: cluster.status("lender").phase == ClaimPhase.ACTIVE, 20)
    runtime.sleep(model("lender"), GIB)  # somebody puts it to sleep at its own API
    cluster.apply("guest", "16Gi", "1Gi")
    await until(cluster, lambda: cluster.status("guest").phase == ClaimPhase.ACTIVE, 20)
    runtime.engines[model("lender")].can_sleep = word
    runtime.crash(model("lender"), 2.0)
    await cluster.run(25)
    assert calls(runtime, "sleep") == [("sleep", model("lender"), 0)] * sleeps
    assert (cluster.status("lender").phase == ClaimPhase.SLEEPING) == bool(sleeps)


@simulated
async def test_a_sleep_that_comes_to_nothing_is_asked_for_again_each_round(cluster):
    runtime = await a_lender_and_a_guest(cluster)
    asleep_before = len(calls(runtime, "sleep"))

    async def no_answer(call):
        return Unknown("no answer") if call[0] == "sleep" else None

    runtime.before_call = no_answer
    wake_by_hand(runtime)
    await cluster.run(28)
    assert len(calls(runtime, "sleep")) - asleep_before in (2, 3)
    runtime.before_call = None
    await cluster.run(10)
    assert cluster.status("lender").phase == ClaimPhase.SLEEPING


@pytest.mark.parametrize("between", [set_reserving, restart], ids=["its pool lends no more", "a restart"])
@simulated
async def test_a_sleeper_that_lent_its_seat_serves_nobody_while_its_card_cannot_be_judged(cluster, between):
    runtime = await a_lender_and_a_guest(cluster, guest="6Gi")
    cluster.patch_claim("guest", {"spec": {"perGPU": None}})
    await cluster.run(5)
    await between(cluster)
    runtime.crash(model("lender"), 2.0)
    await cluster.run(30)
    assert route(cluster, "warm-0", "lender") == ("activating", 0, "")
    cluster.patch_claim("guest", {"spec": {"perGPU": {"maximumFootprint": "6Gi", "kvFloor": "1Gi"}}})
    await cluster.run(30)
    assert cluster.status("lender").phase == ClaimPhase.ACTIVE
    assert sum(limits(cluster, "lender", "guest")) <= CARD_24 - 18 * GIB

"""Requests that cannot be met end after five minutes, and a wake whose answer is lost is found out."""

from datetime import timedelta

import pytest
from simulated import reasons, simulated
from sleepers import (
    asked,
    calls,
    hear,
    one_asleep,
    times,
)

from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.runtime_api.outcome import NotSent, Refused, Unknown
from aibrix_operator.sim.store import wall

# --- 37


@pytest.mark.acceptance("37")
@pytest.mark.parametrize("off", [timedelta(minutes=-10), timedelta(minutes=10)], ids=["slow", "fast"])
@simulated
async def test_mc37_a_gateway_whose_clock_is_off_is_served_like_any_other(cluster, off):
    runtime = await one_asleep(cluster)
    cluster.request_wake("warm-0", "a", rfc3339(wall() + off))
    await cluster.run(8)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert len(calls(runtime, "wake")) == 1


@pytest.mark.acceptance("37")
@simulated
async def test_mc37_a_request_that_cannot_be_met_for_five_minutes_ends_with_an_event(cluster):
    runtime = await one_asleep(cluster)
    heard = hear(cluster)
    runtime.before_call = lambda call: answer(Unknown("no answer") if call[0] == "wake" else None)
    cluster.request_wake("warm-0", "a")
    await cluster.run(298)
    assert asked(cluster, "warm-0", "a")
    assert times(heard, "WakeRequestExpired") == 0
    await cluster.run(5)
    assert not asked(cluster, "warm-0", "a")
    assert [m for _, r, m in heard if r == "WakeRequestExpired"] == [
        "model model-of-a stays asleep on pod warm-0: it could not be woken within 5m0s of the request"
    ]
    assert cluster.condition("a", "Ready")[:2] == ("False", "EngineSleeping")
    runtime.before_call = None
    cluster.request_wake("warm-0", "a")
    await cluster.run(8)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


async def answer(result):
    return result


@pytest.mark.acceptance("37")
@simulated
async def test_mc37_a_request_whose_engine_still_boots_after_five_minutes_ends_silently(cluster):
    runtime = await one_asleep(cluster, wake_s=400.0)
    heard = hear(cluster)
    cluster.request_wake("warm-0", "a")
    await cluster.run(310)
    assert cluster.status("a").phase == ClaimPhase.ACTIVATING
    assert not asked(cluster, "warm-0", "a")
    assert times(heard, "WakeRequestExpired") == 0
    assert len(calls(runtime, "wake")) == 1


@pytest.mark.acceptance("37")
@simulated
async def test_mc37_a_request_for_an_engine_that_serves_is_taken_off(cluster):
    runtime = await one_asleep(cluster)
    cluster.request_wake("warm-0", "b")
    await cluster.run(1)
    assert not asked(cluster, "warm-0", "b")
    assert calls(runtime, "wake") == []


# --- 38


@pytest.mark.acceptance("38")
@pytest.mark.parametrize(
    "result",
    [
        Unknown("502 from something between"),
        Unknown("did not answer in time"),
        NotSent("no route to it"),
        NotSent("did not answer in time recently; not calling it again yet", left_alone=True),
    ],
    ids=["502", "timeout", "not reached", "left alone"],
)
@simulated
async def test_mc38_a_wake_of_which_nothing_is_known_is_asked_again_as_the_same_operation(cluster, result):
    runtime = await one_asleep(cluster)
    heard, left = hear(cluster), [result, result]
    runtime.before_call = lambda call: answer(left.pop() if left and call[0] == "wake" else None)
    cluster.request_wake("warm-0", "a")
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    assert asked(cluster, "warm-0", "a")
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    wakes = [c[3] for c in runtime.calls if c[0] == "wake"]
    assert len(wakes) == 3
    assert len(set(wakes)) == 1
    assert times(heard, "Waking") == 1
    assert times(heard, "WakeFailed") == 0


@pytest.mark.acceptance("38")
@simulated
async def test_mc38_a_wake_whose_answer_was_lost_is_found_out_by_reading(cluster):
    runtime = await one_asleep(cluster)
    runtime.after_call = lambda call: Unknown("lost") if call[0] == "wake" else None
    cluster.request_wake("warm-0", "a")
    await cluster.run(8)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert len(calls(runtime, "wake")) == 1


@pytest.mark.acceptance("38")
@simulated
async def test_mc38_a_wake_that_was_carried_out_before_raises_no_second_event(cluster):
    runtime = await one_asleep(cluster, wake_s=15.0)
    heard = hear(cluster)
    lost = [True]
    runtime.after_call = lambda call: Unknown("lost") if call[0] == "wake" and lost and lost.pop() else None
    cluster.request_wake("warm-0", "a")
    await cluster.run(25)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert times(heard, "Waking") == 0  # its one answer was lost
    assert times(heard, "Woken") == 1


@pytest.mark.acceptance("38")
@simulated
async def test_mc38_a_refused_wake_that_no_other_pod_can_take_over_is_given_up_with_an_event(cluster):
    runtime = await one_asleep(cluster)
    heard = hear(cluster)
    runtime.before_call = lambda call: answer(Refused("the engine is broken", 404) if call[0] == "wake" else None)
    cluster.request_wake("warm-0", "a")
    await cluster.run(20)
    assert [m for _, r, m in heard if r == "WakeFailed"] == [
        "model model-of-a could not be woken on pod warm-0, and no other pod can take it: the engine is broken"
    ]
    assert not asked(cluster, "warm-0", "a")
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    assert len(calls(runtime, "wake")) == 1
    runtime.before_call = None
    cluster.request_wake("warm-0", "a")
    await cluster.run(8)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("38")
@simulated
async def test_mc38_a_refused_wake_of_a_claim_that_declares_nothing_any_more_is_given_up_too(cluster):
    runtime = await one_asleep(cluster)
    runtime.before_call = lambda call: answer(Refused("the engine is broken", 404) if call[0] == "wake" else None)
    cluster.patch_claim("a", {"spec": {"perGPU": None}})
    cluster.request_wake("warm-0", "a")
    await cluster.run(20)
    assert "WakeFailed" in reasons(cluster, "a")
    assert not asked(cluster, "warm-0", "a")

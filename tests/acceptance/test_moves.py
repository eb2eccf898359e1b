"""A claim that cannot be served where it is moves to another Pod, and its engine is touched once that is written."""

import asyncio

import pytest
from simulated import CARD_24, GIB, limits, model, reasons, simulated
from sleepers import calls, claim_uid, hear, lending, policy, route, seat_asleep, times

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase, InstancePhase
from aibrix_operator.cluster import errors
from aibrix_operator.modelclaim.waking import NO_ROOM
from aibrix_operator.runtime_api.outcome import Refused, Unknown


async def cannot_wake(cluster, **runtime):
    """A busy engine holds what a sleeper would need."""
    pod = cluster.add_pod("warm-0", 1000, **runtime)
    cluster.set_policy(lending())
    cluster.seat("busy", "warm-0", 600, 100, limit_bytes=300, running=3)
    seat_asleep(cluster, "waker", "warm-0", 300, 100, limit_bytes=0, asleep_bytes=60)
    await cluster.run(12)
    pod.calls.clear()
    return pod


# --- 39


@pytest.mark.acceptance("39")
@simulated
async def test_mc39_a_sleeper_without_room_moves_to_a_pod_that_has_it(cluster):
    old = await cannot_wake(cluster)
    new = cluster.add_pod("warm-1", 1000)
    await cluster.run(2)
    heard, seen = hear(cluster), []

    async def look(call):
        if call[0] == "deactivate":
            seen.append((cluster.status("waker").instances[0].reason, route(cluster, "warm-0", "waker")))

    old.before_call = look
    cluster.request_wake("warm-0", "waker")
    await cluster.run(10)
    assert calls(old, "deactivate", "wake", "sleep") == [("deactivate", model("waker"), 0)]
    assert seen == [("NoRoomToWake", None)]
    assert calls(new, "activate") == [("activate", model("waker"), 0)]
    assert cluster.status("waker").phase == ClaimPhase.ACTIVE
    assert [i.pod for i in cluster.status("waker").instances] == ["warm-1"]
    assert [k for k in cluster.annotations("warm-0") if k.endswith("/waker")] == []
    assert [m for _, r, m in heard if r == "Moving"] == [
        f"model model-of-waker cannot wake on pod warm-0, and moves to another pod: {NO_ROOM}"
    ]
    assert [m for _, r, m in heard if r == "Rescheduled"] == [
        "model model-of-waker moved because its card could not take it back from sleep, from pod warm-0 to pod warm-1"
    ]
    assert cluster.status("busy").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("39")
@simulated
async def test_mc39_a_move_is_in_the_status_and_on_the_route_before_anything_happens(cluster):
    old = await cannot_wake(cluster)
    cluster.add_pod("warm-1", 1000)
    await cluster.run(2)
    routes, phases = [], []

    def look(verb, resource, name, body):
        if verb == "annotate" and name == "warm-0":
            routes.append(body["metadata"]["annotations"].get(names.route_annotation("waker"), "other"))
            phases.append((cluster.status("waker").phase, cluster.condition("waker", "Ready")[1]))

    cluster.store.lost = look
    cluster.request_wake("warm-0", "waker")
    await cluster.run(10)
    assert phases[0] == (ClaimPhase.FAILED, "Moving")
    assert routes.index(None) == len(routes) - 1  # once taken away it does not come back
    assert all('"state":"failed"' in r and '"reason":"Moving"' in r for r in routes[:-1])
    assert calls(old, "deactivate") == [("deactivate", model("waker"), 0)]


@pytest.mark.acceptance("39")
@simulated
async def test_mc39_a_move_that_cannot_be_written_leaves_the_engine_untouched(cluster):
    old = await cannot_wake(cluster)
    new = cluster.add_pod("warm-1", 1000)
    await cluster.run(2)

    def refuse(verb, resource, name, body):
        if verb == "status" and name == "waker" and body["status"]["phase"] == "Failed":
            return errors.Conflict("HTTP 409: modified", status=409)
        return None

    cluster.store.fault = refuse
    heard = hear(cluster)
    cluster.request_wake("warm-0", "waker")
    await cluster.run(30)
    assert calls(old, "deactivate", "wake") == calls(new, "activate") == []
    assert route(cluster, "warm-0", "waker")[0] == "sleeping"
    assert times(heard, "Moving") == 0
    cluster.store.fault = lambda *call: None
    await cluster.run(40)
    assert times(heard, "Moving") == 1
    assert cluster.status("waker").phase == ClaimPhase.ACTIVE


def when_moving(cluster, do):
    """Have ``do()`` run once, a moment before it is written that the claim moves."""

    async def look():
        if any(i.phase is InstancePhase.FAILED for i in cluster.world.writing.get(claim_uid(cluster, "waker"), ())):
            cluster.store.delay = None
            do()
            await asyncio.sleep(0.01)

    cluster.store.delay = look


async def moving_without_a_place(cluster):
    """Chosen to move, and the other Pod closed before it could be taken there."""
    old = await cannot_wake(cluster)
    cluster.add_pod("warm-1", 1000)
    await cluster.run(2)

    when_moving(cluster, lambda: cluster.label_pod("warm-1", {names.ENABLED_LABEL: "false"}))
    cluster.request_wake("warm-0", "waker")
    await cluster.run(3)
    assert cluster.status("waker").phase == ClaimPhase.FAILED
    assert cluster.condition("waker", "Ready")[:2] == ("False", "Moving")
    assert route(cluster, "warm-0", "waker") == ("failed", 0, "Moving")
    assert calls(old, "deactivate") == []
    return old


@pytest.mark.acceptance("39")
@simulated
async def test_mc39_a_move_is_called_off_when_its_own_card_can_take_the_sleeper_back(cluster):
    old = await moving_without_a_place(cluster)
    heard = hear(cluster)
    message = cluster.condition("waker", "Scheduled")[2]
    assert message.startswith("model model-of-waker cannot move from pod warm-0, where it could not wake: ")
    assert "ReschedulePending" in reasons(cluster, "waker")
    cluster.delete_claim("busy")
    old.engines[model("busy")].running = 0
    await cluster.run(20)
    assert [m for _, r, m in heard if r == "MoveCalledOff"] == [
        "model model-of-waker stays asleep on pod warm-0, whose card can take it back now"
    ]
    assert cluster.status("waker").phase == ClaimPhase.ACTIVE  # the request still stood
    assert calls(old, "wake", "deactivate") == [("deactivate", model("busy"), 0), ("wake", model("waker"), 0)]


@pytest.mark.acceptance("39")
@simulated
async def test_mc39_a_move_whose_engine_is_gone_is_not_called_off(cluster):
    old = await moving_without_a_place(cluster)
    heard = hear(cluster)
    old.deactivate(model("waker"))
    old.engines[model("busy")].running = 0
    cluster.delete_claim("busy")
    await cluster.run(20)
    assert times(heard, "MoveCalledOff") == 0
    assert cluster.condition("waker", "Ready")[:2] == ("False", "Moving")
    cluster.label_pod("warm-1", {names.ENABLED_LABEL: "true"})
    await cluster.run(70)
    assert cluster.status("waker").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("39")
@simulated
async def test_mc39_a_restart_in_the_middle_of_a_move_finishes_it(cluster):
    old = await cannot_wake(cluster)
    new = cluster.add_pod("warm-1", 1000)
    await cluster.run(2)
    stop = asyncio.Event()
    when_moving(cluster, lambda: asyncio.get_running_loop().call_later(0.01, stop.set))
    cluster.request_wake("warm-0", "waker")
    await stop.wait()
    await cluster.stop_controller()
    assert cluster.status("waker").phase == ClaimPhase.FAILED
    cluster.start_controller()
    await cluster.run(15)
    assert cluster.status("waker").phase == ClaimPhase.ACTIVE
    assert model("waker") not in old.engines
    assert len(calls(new, "activate")) == 1


@pytest.mark.acceptance("39")
@simulated
async def test_mc39_a_claim_deleted_in_the_middle_of_a_move_leaves_nothing(cluster):
    old = await cannot_wake(cluster)
    new = cluster.add_pod("warm-1", 1000)
    await cluster.run(2)
    when_moving(cluster, lambda: asyncio.get_running_loop().call_later(0.01, cluster.delete_claim, "waker"))
    cluster.request_wake("warm-0", "waker")
    await cluster.run(10)
    assert not cluster.exists("waker")
    assert model("waker") not in old.engines
    assert new.engines == {}


@pytest.mark.acceptance("39")
@simulated
async def test_mc39_a_start_refused_at_the_new_pod_puts_the_failed_instance_back(cluster):
    await cannot_wake(cluster)
    new = cluster.add_pod("warm-1", 1000)
    await cluster.run(2)
    heard = hear(cluster)

    async def refuse(call):
        return Refused("no such model", 400) if call[0] == "activate" else None

    new.before_call = refuse
    cluster.request_wake("warm-0", "waker")
    await cluster.run(5)
    assert times(heard, "RescheduleFailed") == 1
    assert [m for _, r, m in heard if r == "RescheduleFailed"] == ["activate replacement on pod warm-1: no such model"]
    assert [(i.pod, i.phase) for i in cluster.status("waker").instances] == [("warm-0", "Failed")]
    new.before_call = None
    await cluster.run(30)
    assert cluster.status("waker").phase == ClaimPhase.ACTIVE


# --- 38


@pytest.mark.acceptance("38")
@simulated
async def test_mc38_a_refused_wake_moves_to_another_pod_and_is_not_called_off(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(policy(sleepAfterSeconds=3600))
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)
    runtime.sleep(model("a"), GIB)
    new = cluster.add_pod("warm-1", CARD_24)
    await cluster.run(3)
    heard = hear(cluster)

    async def refuse(call):
        return Refused("the engine is broken", 404) if call[0] == "wake" else None

    runtime.before_call = refuse
    cluster.request_wake("warm-0", "a")
    await cluster.run(15)
    assert times(heard, "WakeFailed") == times(heard, "MoveCalledOff") == 0
    assert [m for _, r, m in heard if r == "Moving"] == [
        "model model-of-a cannot wake on pod warm-0, and moves to another pod: the engine is broken"
    ]
    assert [m for _, r, m in heard if r == "Rescheduled"] == [
        "model model-of-a moved because it could not be woken there, from pod warm-0 to pod warm-1"
    ]
    assert calls(runtime, "wake", "deactivate") == [("wake", model("a"), 0), ("deactivate", model("a"), 0)]
    assert calls(new, "activate") == [("activate", model("a"), 0)]
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


# --- 43


async def failed_for_good(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(15)
    runtime.calls.clear()
    runtime.fail(model("a"))
    await cluster.run(12)
    return runtime


@pytest.mark.acceptance("43")
@simulated
async def test_mc43_an_engine_that_failed_for_good_is_told_of_and_its_seat_is_free_at_once(cluster):
    runtime = await failed_for_good(cluster)
    assert cluster.status("a").phase == ClaimPhase.FAILED
    assert cluster.condition("a", "Ready")[:2] == ("False", "EngineFailed")
    assert route(cluster, "warm-0", "a") == ("failed", 0, "")
    assert cluster.events("EngineFailed", "a") == [
        ("EngineFailed", "model model-of-a failed on pod warm-0: the engine ended for the sixth time")
    ]
    assert cluster.condition("a", "Scheduled")[2].startswith("model model-of-a cannot move from failed pod warm-0: ")
    assert reasons(cluster, "a").count("ReschedulePending") == 1
    assert cluster.status("b").phase == ClaimPhase.ACTIVE
    assert limits(cluster, "b") == (18 * GIB,)
    assert runtime.engines[model("b")].limit_bytes == 18 * GIB
    cluster.add_pod("warm-1", CARD_24)
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert cluster.events("Rescheduled") == [
        ("Rescheduled", "model model-of-a moved after terminal engine failure from pod warm-0 to pod warm-1")
    ]


@pytest.mark.acceptance("43")
@simulated
async def test_mc43_with_a_second_pod_the_claim_moves_and_the_first_pod_is_not_chosen(cluster):
    new = cluster.add_pod("warm-1", CARD_24)
    cluster.label_pod("warm-1", {names.ENABLED_LABEL: "false"})
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)
    cluster.label_pod("warm-1", {names.ENABLED_LABEL: "true"})
    await cluster.run(2)
    runtime.fail(model("a"))
    await cluster.run(10)
    assert [i.pod for i in cluster.status("a").instances] == ["warm-1"]
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert calls(runtime, "deactivate") == [("deactivate", model("a"), 0)]
    assert calls(new, "activate") == [("activate", model("a"), 0)]


@pytest.mark.acceptance("43")
@simulated
async def test_mc43_an_old_engine_whose_stop_was_lost_is_stopped_after_all(cluster):
    cluster.add_pod("warm-1", 1000)
    cluster.label_pod("warm-1", {names.ENABLED_LABEL: "false"})
    old = await cannot_wake(cluster)
    left = [True]

    async def lose(call):
        return Unknown("lost") if call[0] == "deactivate" and left and left.pop() else None

    old.before_call = lose
    cluster.label_pod("warm-1", {names.ENABLED_LABEL: "true"})
    cluster.request_wake("warm-0", "waker")
    await cluster.run(60)
    assert cluster.status("waker").phase == ClaimPhase.ACTIVE
    assert model("waker") not in old.engines

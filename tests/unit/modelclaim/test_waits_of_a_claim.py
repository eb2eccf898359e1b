"""How long a refused claim waits before its next try, and what ends the wait early."""

import itertools

import pytest
from simulated import CARD_24, GIB, simulated, starts

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.modelclaim.memory import Wait, WaitKind
from aibrix_operator.runtime_api.outcome import Refused


def wait_of(cluster, claim) -> Wait | None:
    obj = cluster.store.objects["modelclaims", "default", claim]
    memory = cluster.world.memory["default"].claims.get(obj["metadata"]["uid"])
    return None if memory is None else memory.wait


async def waiting(cluster, footprint="20Gi"):
    """One card with room for two, taken by two, and a third claim that waits for 60 s between its tries."""
    runtime = cluster.add_pod("warm-0", CARD_24)
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(30)
    cluster.apply("late", footprint, "1Gi")
    await cluster.run(131)
    assert wait_of(cluster, "late").tries == 5
    runtime.calls.clear()
    return runtime


@simulated
async def test_waits_double_from_ten_seconds_to_a_minute(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("full", "22Gi", "1Gi")
    await cluster.run(5)
    cluster.apply("late", "10Gi", "1Gi")
    until_s = []
    for _ in range(260):
        await cluster.run(1)
        wait = wait_of(cluster, "late")
        if wait is not None and wait.until_s not in until_s:
            until_s.append(wait.until_s)
    assert [round(later - earlier) for earlier, later in itertools.pairwise(until_s)][:5] == [20, 40, 60, 60, 60]
    assert round(until_s[0]) == 15


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(lambda c: c.patch_claim("late", {"spec": {"perGPU": {"kvFloor": "2Gi"}}}), id="its own spec"),
        pytest.param(lambda c: c.add_pod("warm-1", 8 * GIB), id="a pod joined"),
        pytest.param(lambda c: c.patch_claim("a", {"spec": {"perGPU": {"kvFloor": "512Mi"}}}), id="less is promised"),
    ],
)
@simulated
async def test_a_wait_for_room_ends_early_and_starts_again_from_the_shortest(cluster, event):
    await waiting(cluster)
    before = wait_of(cluster, "late")
    event(cluster)
    await cluster.run(1.5)
    after = wait_of(cluster, "late")
    assert (after.kind, after.tries) == (WaitKind.ROOM, 1)
    assert after.since_pass > before.since_pass


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(lambda c: c.patch_claim("a", {"spec": {"perGPU": {"kvFloor": "2Gi"}}}), id="more is promised"),
        pytest.param(lambda c: c.apply("another", "20Gi", "1Gi"), id="another claim waits"),
        pytest.param(lambda c: c.patch_claim("late", {"metadata": {"labels": {"x": "y"}}}), id="its labels"),
    ],
)
@simulated
async def test_a_wait_for_room_outlasts_what_frees_nothing(cluster, event):
    await waiting(cluster)
    before = wait_of(cluster, "late")
    event(cluster)
    await cluster.run(1.5)
    assert wait_of(cluster, "late") == before


@simulated
async def test_a_pod_that_flaps_between_ready_and_not_ends_a_wait_once(cluster):
    await waiting(cluster)
    cluster.add_pod("warm-1", 8 * GIB)
    cluster.set_pod_ready("warm-1", False)
    await cluster.run(5)
    for is_ready in (True, False, True, False, True):
        cluster.set_pod_ready("warm-1", is_ready)
        await cluster.run(0.5)
    assert wait_of(cluster, "late").tries == 1
    settled = wait_of(cluster, "late")
    for is_ready in (False, True, False, True):
        cluster.set_pod_ready("warm-1", is_ready)
        await cluster.run(0.5)
    assert wait_of(cluster, "late") == settled


@simulated
async def test_a_wait_for_a_larger_card_ends_only_with_a_pod_or_the_spec(cluster):
    await waiting(cluster, footprint="40Gi")
    before = wait_of(cluster, "late")
    assert before.kind is WaitKind.LARGER_CARD
    cluster.delete_claim("a")
    await cluster.run(10)
    assert wait_of(cluster, "late") == before
    larger = cluster.add_pod("warm-1", 80 * GIB)
    await cluster.run(1)
    assert len(starts(larger)) == 1


@simulated
async def test_a_refused_start_waits_whatever_room_comes_free(cluster):
    runtime = await waiting(cluster)

    async def refuse(call):
        return Refused("no", 400) if call[0] == "activate" else None

    runtime.before_call = refuse
    cluster.delete_claim("a")
    await cluster.run(8)
    assert wait_of(cluster, "late").kind is WaitKind.ROOM
    cluster.patch_claim("late", {"spec": {"perGPU": {"maximumFootprint": "8Gi"}}})
    await cluster.run(1)
    assert wait_of(cluster, "late").kind is WaitKind.START
    cluster.delete_claim("b")
    await cluster.run(8)
    assert len(starts(runtime)) == 1


@simulated
async def test_claims_woken_together_are_tried_oldest_first(cluster):
    runtime = cluster.add_pod("warm-0", 4 * GIB)
    for claim in ("second", "first"):
        await cluster.run(1.5)
        cluster.apply(claim, "20Gi", "1Gi")
    await cluster.run(100)
    larger = cluster.add_pod("warm-1", CARD_24)
    await cluster.run(5)
    assert starts(runtime) == []
    assert starts(larger) == ["model-of-second"]


@simulated
async def test_a_claim_that_loses_its_engine_starts_over(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(10)
    cluster.delete_pod("warm-0")
    await cluster.run(1)
    assert wait_of(cluster, "a").tries == 1
    cluster.add_pod("warm-1", CARD_24, labels={names.ENABLED_LABEL: "no"})
    await cluster.run(30)
    assert cluster.status("a").phase == ClaimPhase.PENDING
    cluster.label_pod("warm-1", {names.ENABLED_LABEL: "true"})
    await cluster.run(65)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE

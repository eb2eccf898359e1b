"""When a pass may look at some Pods alone: nobody wants a place, and the change is one of an engine that has one."""

import dataclasses

import pytest
from builders import make_claim, make_fleet, make_instance, make_pod
from simulated import CARD_24, model, simulated
from sleepers import policy

from aibrix_operator.api.modelclaim import ClaimPhase, InstancePhase
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim import scopes
from aibrix_operator.modelclaim.memory import CardMemory, Cause, ClaimMemory, Division, Hold, Memory, Wait, WaitKind
from aibrix_operator.sim.world import NAMESPACE

FAILED = make_instance(InstancePhase.FAILED)
WAITING = {"uid-of-b": ClaimMemory(wait=Wait(WaitKind.ROOM, 1, until_s=20.0, generation=1, since_pass=1))}


def seating(*claims, memory=None):
    memory = memory or Memory()
    return scopes.seating(make_fleet(make_pod(), *claims), memory, 10.0)


def test_claims_are_listed_by_the_pod_they_are_on():
    seated = seating(make_claim("a", make_instance()), make_claim("b", make_instance(InstancePhase.SLEEPING)))
    assert seated == {"warm-0": (("default", "a"), ("default", "b"))}


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(make_claim("b"), id="it wants a place"),
        pytest.param(make_claim("b", FAILED), id="it moves"),
        pytest.param(make_claim("b", make_instance(pod="gone")), id="its Pod is gone"),
        pytest.param(make_claim("b", make_instance(), has_finalizer=False), id="it has no finalizer yet"),
        pytest.param(make_claim("b", make_instance(), deleting_since=make_claim().created_at), id="it is deleted"),
        pytest.param(
            make_claim("b", make_instance(), is_writing=True, writing_instances=(make_instance(pod="warm-1"),)),
            id="its record is being replaced",
        ),
        pytest.param(
            make_claim("b", make_instance(), unsure_instances=(make_instance(pod="warm-1"),)),
            id="its record may have been replaced",
        ),
    ],
)
def test_a_claim_on_its_way_makes_every_pass_a_whole_one(claim):
    assert seating(make_claim("a", make_instance()), claim) is None


def test_a_claim_that_was_told_why_it_waits_makes_none():
    assert seating(make_claim("b"), memory=Memory(claims=WAITING)) == {}
    assert seating(make_claim("b", seat=None)) == {}


def test_a_claim_that_waits_and_may_have_been_recorded_makes_every_pass_a_whole_one():
    unsure = make_claim("b", unsure_instances=(make_instance(),))
    assert seating(unsure, memory=Memory(claims=WAITING)) is None


def test_a_claim_whose_wait_is_over_makes_every_pass_a_whole_one():
    over = {"uid-of-b": dataclasses.replace(WAITING["uid-of-b"], wait=Wait(WaitKind.ROOM, 1, 10.0, 1, 1))}
    assert seating(make_claim("b"), memory=Memory(claims=over)) is None


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(CardMemory(hold=Hold("uid-of-b", 400, 99.0)), id="room is held"),
        pytest.param(
            CardMemory(division=Division(Cause.PLACEMENT, frozenset(), {}, {}, "b", Seat(300, 100))),
            id="a card is divided for it",
        ),
    ],
)
def test_room_on_its_way_to_a_claim_makes_every_pass_a_whole_one(card):
    assert seating(make_claim("b"), memory=Memory(claims=WAITING, cards={"uid-of-warm-0": card})) is None


def body(*pods, phase="Active", **metadata):
    return {
        "metadata": {"generation": 1, **metadata},
        "status": {"instances": [{"pod": p, "phase": phase} for p in pods]},
    }


@pytest.mark.parametrize(
    ("before", "after", "concerned"),
    [
        pytest.param(body("x"), body("x"), {"x"}, id="its status changed"),
        pytest.param(None, body("x"), None, id="it is new"),
        pytest.param(body("x"), body("y"), None, id="it moved"),
        pytest.param(body("x"), body(), None, id="it lost its place"),
        pytest.param(body(), body("x"), None, id="it got one"),
        pytest.param(body("x"), body("x", phase="Failed"), None, id="its engine failed for good"),
        pytest.param(body("x"), body("x", generation=2), None, id="it was declared anew"),
        pytest.param(body("x"), body("x", deletionTimestamp="2026-01-01T00:00:00Z"), None, id="it is deleted"),
        pytest.param(body("x"), {"metadata": {"generation": 1}, "status": {"instances": [7]}}, None, id="unreadable"),
    ],
)
def test_a_changed_claim_concerns_its_pod_or_any(before, after, concerned):
    assert scopes.concerned_by_claim(before, after) == concerned


def passes(cluster, scope):
    return (
        cluster.world.metrics.registry.get_sample_value(
            "aibrix_modelclaim_pass_duration_seconds_count", {"scope": scope}
        )
        or 0.0
    )


@simulated
async def test_a_wake_looks_at_its_own_pod_alone(cluster):
    for number in range(3):
        cluster.add_pod(f"warm-{number}", CARD_24)
    cluster.set_policy(policy(sleepAfterSeconds=3600))
    for claim in "abc":
        cluster.apply(claim, "16Gi", "1Gi")
    await cluster.run(15)
    pod = cluster.status("a").instances[0].pod
    runtime = cluster.runtimes.by_ip[cluster.world.pods.get((NAMESPACE, pod))["status"]["podIP"]]
    runtime.sleep(model("a"), runtime.asleep_bytes)
    await cluster.run(5)
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    whole, some = passes(cluster, "whole"), passes(cluster, "some")

    cluster.request_wake(pod, "a")
    await cluster.run(30)

    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert passes(cluster, "whole") == whole
    assert passes(cluster, "some") > some


@simulated
async def test_room_that_comes_free_on_one_pod_is_found_by_who_waits(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "16Gi", "1Gi")
    await cluster.run(15)
    cluster.apply("b", "16Gi", "1Gi")
    await cluster.run(45)
    assert cluster.condition("b", "Scheduled")[1] == "NoMatchingPods"

    cluster.delete_claim("a")
    await cluster.run(30)

    assert cluster.status("b").phase == ClaimPhase.ACTIVE

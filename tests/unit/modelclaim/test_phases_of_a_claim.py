"""Phase and Ready condition of a claim, derived from its instances in the documented order."""

import dataclasses

import pytest
from builders import NOW, make_claim, make_instance

from aibrix_operator.api.modelclaim import ClaimPhase, InstancePhase, Reason
from aibrix_operator.modelclaim import publish

ACTIVATING, ACTIVE = (make_instance(p) for p in (InstancePhase.ACTIVATING, InstancePhase.ACTIVE))
ASLEEP, FAILED = (make_instance(p) for p in (InstancePhase.SLEEPING, InstancePhase.FAILED))
MOVING = make_instance(InstancePhase.FAILED, reason="NoRoomToWake")
WAITING = make_instance(InstancePhase.SLEEPING, reason="WaitingForRoom")


def derive(claim, instances, start_error="", scheduled=None):
    return publish.derive_status(claim, instances, candidates=1, scheduled=scheduled, start_error=start_error, now=NOW)


def ready_of(status):
    return next(((str(c.status), c.reason) for c in status.conditions if c.type == "Ready"), None)


@pytest.mark.parametrize(
    ("instances", "phase", "ready"),
    [
        pytest.param([MOVING], ClaimPhase.FAILED, ("False", "Moving"), id="every failed one moves"),
        pytest.param([MOVING, FAILED], ClaimPhase.FAILED, ("False", "EngineFailed"), id="one failed for good"),
        pytest.param([FAILED, ACTIVE], ClaimPhase.FAILED, ("False", "EngineFailed"), id="failed before active"),
        pytest.param([ACTIVE], ClaimPhase.ACTIVE, ("True", "ModelClaimActive"), id="all active"),
        pytest.param([ACTIVE, ACTIVATING], ClaimPhase.ACTIVATING, ("False", "EngineStarting"), id="one not yet"),
        pytest.param([ASLEEP, WAITING], ClaimPhase.SLEEPING, ("False", "WaitingForRoom"), id="one waits for room"),
        pytest.param([ASLEEP], ClaimPhase.SLEEPING, ("False", "EngineSleeping"), id="asleep"),
        pytest.param(
            [ACTIVATING, ASLEEP], ClaimPhase.SLEEPING, ("False", "EngineSleeping"), id="asleep before starting"
        ),
        pytest.param([ACTIVATING], ClaimPhase.ACTIVATING, ("False", "EngineStarting"), id="starting"),
        pytest.param([], ClaimPhase.PENDING, None, id="never had an engine"),
    ],
)
def test_the_phase_follows_the_first_rule_that_fits(instances, phase, ready):
    status = derive(make_claim("a"), instances)
    assert (status.phase, ready_of(status)) == (phase, ready)
    assert status.ready_replicas == instances.count(ACTIVE)


def test_a_claim_that_lost_its_engine_waits_to_be_placed():
    status = derive(make_claim("a", ACTIVE), [])
    assert (status.phase, ready_of(status)) == (ClaimPhase.PENDING, ("False", "NotPlaced"))


def test_a_refused_start_fails_the_claim_until_another_is_tried():
    status = derive(make_claim("a", ACTIVATING), [], start_error="no such file")
    assert (status.phase, ready_of(status)) == (ClaimPhase.FAILED, ("False", "ActivateFailed"))
    again = derive(make_claim("a", conditions=status.conditions), [])
    assert (again.phase, again.conditions) == (ClaimPhase.FAILED, status.conditions)


def test_arguments_that_cannot_work_fail_the_claim():
    status = derive(make_claim("a", engine_error="--data-parallel-size=2 is unsupported"), [])
    assert (status.phase, ready_of(status)) == (ClaimPhase.FAILED, ("False", "InvalidEngineConfig"))


def test_a_status_that_says_the_same_is_the_same_value():
    claim = make_claim("a", ACTIVE)
    status = derive(claim, [ACTIVE], scheduled=publish.Scheduled(True, Reason.PLACED, "placed on pod warm-0"))
    assert derive(dataclasses.replace(claim, status=status), [ACTIVE]) == status


def test_conditions_keep_the_time_of_their_last_flip():
    first = derive(make_claim("a"), [ACTIVATING])
    second = derive(make_claim("a", ACTIVATING, conditions=first.conditions), [ACTIVE])
    assert second.conditions[0] == first.conditions[0]
    assert ready_of(second) == ("True", "ModelClaimActive")

"""The status of a claim, derived from its instances: phase, counters and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from aibrix_operator.api import conditions
from aibrix_operator.api.modelclaim import (
    ClaimPhase,
    ConditionType,
    Instance,
    InstancePhase,
    ModelClaimStatus,
    Reason,
)
from aibrix_operator.modelclaim.snapshot import Claim


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What the ``Scheduled`` condition is to say."""

    status: bool
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class _Ready:
    phase: ClaimPhase
    reason: Reason | None = None
    """None leaves the condition as it is."""
    message: str = ""

    @property
    def is_ready(self) -> bool:
        return self.reason is Reason.MODEL_CLAIM_ACTIVE


def derive_status(
    claim: Claim,
    instances: Sequence[Instance],
    *,
    candidates: int,
    scheduled: Scheduled | None,
    start_error: str,
    now: datetime,
) -> ModelClaimStatus:
    """The whole status. ``scheduled`` None leaves that condition as it is; ``start_error`` is of a start just refused.

    A status that says the same is the same value, so that nothing is written.
    """
    ready = _ready(claim, instances, start_error)
    after = conditions.set_condition(
        claim.status.conditions,
        ConditionType.INITIALIZED,
        True,
        Reason.MODEL_CLAIM_INITIALIZED,
        f"model {claim.model} has entered the reconciliation loop",
        generation=claim.generation,
        now=now,
    )
    if scheduled is not None:
        after = conditions.set_condition(
            after,
            ConditionType.SCHEDULED,
            scheduled.status,
            scheduled.reason,
            scheduled.message,
            generation=claim.generation,
            now=now,
        )
    if ready.reason is not None:
        after = conditions.set_condition(
            after,
            ConditionType.READY,
            ready.is_ready,
            ready.reason,
            ready.message,
            generation=claim.generation,
            now=now,
        )
    fields: dict[str, object] = {
        "phase": ready.phase,
        "candidates": candidates,
        "desired_replicas": claim.spec.replicas,
        "ready_replicas": sum(i.phase is InstancePhase.ACTIVE for i in instances),
        "instances": tuple(instances),
        "conditions": after,
    }
    # Most claims of most passes say the same, and a copy costs more than this look.
    if all(getattr(claim.status, name) == value for name, value in fields.items()):
        return claim.status
    return claim.status.model_copy(update=fields)


def _ready(claim: Claim, instances: Sequence[Instance], start_error: str) -> _Ready:
    """Phase and Ready condition, in the order of the reference's table."""
    model = claim.model
    if claim.engine_error and not instances:
        return _Ready(
            ClaimPhase.FAILED,
            Reason.INVALID_ENGINE_CONFIG,
            f"invalid engineConfig parallelism: {claim.engine_error}",
        )
    if not instances:
        return _unplaced(claim, start_error)
    first = instances[0]
    where = f"on pod {first.pod}"
    failed = [i for i in instances if i.phase is InstancePhase.FAILED]
    if failed and all(i.reason for i in failed):
        return _Ready(
            ClaimPhase.FAILED, Reason.MOVING, f"model {model} could not wake {where}, and moves to another pod"
        )
    if failed:
        return _Ready(ClaimPhase.FAILED, Reason.ENGINE_FAILED, f"the engine of model {model} {where} failed for good")
    if all(i.phase is InstancePhase.ACTIVE for i in instances):
        return _Ready(ClaimPhase.ACTIVE, Reason.MODEL_CLAIM_ACTIVE, f"model {model} is served {where}")
    if any(i.phase is InstancePhase.SLEEPING and i.reason == Reason.WAITING_FOR_ROOM for i in instances):
        return _Ready(
            ClaimPhase.SLEEPING, Reason.WAITING_FOR_ROOM, f"model {model} was asked for, and waits for room {where}"
        )
    if any(i.phase is InstancePhase.SLEEPING for i in instances):
        return _Ready(ClaimPhase.SLEEPING, Reason.ENGINE_SLEEPING, f"model {model} is asleep {where}")
    return _Ready(
        ClaimPhase.ACTIVATING, Reason.ENGINE_STARTING, f"the engine of model {model} is not ready {where} yet"
    )


def _unplaced(claim: Claim, start_error: str) -> _Ready:
    if start_error:
        return _Ready(ClaimPhase.FAILED, Reason.ACTIVATE_FAILED, start_error)
    if claim.status.instances:
        message = f"model {claim.model} lost its engine on pod {claim.status.instances[0].pod} and waits to be placed"
        return _Ready(ClaimPhase.PENDING, Reason.NOT_PLACED, message)
    before = conditions.find_condition(claim.status.conditions, ConditionType.READY)
    if before is not None and before.reason == Reason.ACTIVATE_FAILED:
        return _Ready(ClaimPhase.FAILED, Reason.ACTIVATE_FAILED, before.message)
    if before is not None:
        return _Ready(ClaimPhase.PENDING, Reason.NOT_PLACED, f"model {claim.model} waits to be placed")
    return _Ready(ClaimPhase.PENDING)


def is_same_scheduled(claim: Claim, scheduled: Scheduled) -> bool:
    """Whether the condition says this already, so that no Event is due."""
    before = conditions.find_condition(claim.status.conditions, ConditionType.SCHEDULED)
    return (
        before is not None
        and (before.status == "True") == scheduled.status
        and before.reason == scheduled.reason
        and before.message == conditions.bounded(scheduled.message)
    )

"""What StormService, RoleSet and PodSet share: their names on objects, counts that may be percentages, conditions.

All labels, annotations and finalizers are AIBrix v0.8.0's, spelled once here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from math import ceil, floor
from typing import Annotated, Any

from pydantic import Field, StringConstraints, WithJsonSchema

from aibrix_operator.api.conditions import ConditionStatus, bounded, rfc3339
from aibrix_operator.api.schema import Contract, Extend, rule

GROUP = "orchestration.aibrix.ai"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

STORM_FINALIZER = f"{GROUP}/stormservice-finalizer"
ROLESET_FINALIZER = f"{GROUP}/roleset-finalizer"
PODSET_FINALIZER = f"{GROUP}/podset-finalizer"

STORM_LABEL = "storm-service-name"
STORM_REVISION_LABEL = "storm-service-revision"
ROLESET_LABEL = "roleset-name"
ROLE_LABEL = "role-name"
HASH_LABEL = "role-template-hash"
INHERITED_LABELS = ("name", "previous-owner")
"""Labels of a RoleSet that its Pods carry too."""

_PREFIX = "stormservice.orchestration.aibrix.ai/"
REVISION_ANNOTATION = _PREFIX + "revision"
ROLESET_INDEX = _PREFIX + "roleset-index"
REPLICA_INDEX = _PREFIX + "role-replica-index"
ROLE_REVISION = _PREFIX + "role-revision"
ROLE_REVISION_NAME = _PREFIX + "role-revision-name"
PODSET_LABEL = _PREFIX + "podset-name"
POD_GROUP_INDEX = _PREFIX + "pod-group-index"
HISTORICAL_NODES = _PREFIX + "historical-node-bindings"
IN_PLACE_GATE = _PREFIX + "in-place-update-ready"
IN_PLACE_TARGET = _PREFIX + "in-place-update-target-hash"
IN_PLACE_STATE = _PREFIX + "in-place-update-state"
IN_PLACE_PENDING = _PREFIX + "in-place-update-pending-reason"

DRAINING = "aibrix.ai/draining"
DRAIN_START = "aibrix.ai/drain-start-time"
DRAIN_REASON = "aibrix.ai/drain-reason"
DRAIN_ACTION = "aibrix.ai/drain-target-action"
DRAIN_MARKS = (DRAINING, DRAIN_START, DRAIN_REASON, DRAIN_ACTION)

SIDECAR_INJECTION = "model.aibrix.ai/sidecar-injection"
SIDECAR_IMAGE = "model.aibrix.ai/sidecar-runtime-image"

MAX_ROLES = 64
"""A bound for the API server's estimate of what the rules over roles cost."""
MAX_GROUP = 100

IntOrPercent = Annotated[
    int | str,
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "maxLength": 8,
            "x-kubernetes-validations": [
                rule(
                    "type(self) == int ? self >= 0 : self.matches('^[0-9]{1,7}%$')",
                    "must be a count from 0 or a percentage such as 25%",
                )
            ],
        }
    ),
]
PodTemplate = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]
"""A core/v1 PodTemplateSpec as it was written. The API server judges it when a Pod is made of it."""

Labels = dict[str, Annotated[str, StringConstraints(max_length=63)]]


class Reason(StrEnum):
    """Condition and Event reasons of the three kinds."""

    READY = "Ready"
    ROLESET_READY = "roleset is ready"
    ROLESET_NOT_READY = "roleset is not ready"
    ROLESET_FAILED = "reconcile roleset error"
    FAILURE = "Failure"
    PROCESSING = "Processing"
    DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    PAUSED = "DeploymentPaused"
    RESUMED = "DeploymentResumed"
    SERVICE_SYNCED = "HeadlessServiceSynced"
    SCALING = "Scaling"
    ROLLOUT = "Rollout"
    RECONCILE_ERROR = "ReconcileError"
    POD_GROUP_SYNCED = "PodGroupSynced"
    POD_GROUP_INCOMPLETE = "PodGroupSyncIncomplete"
    POD_GROUP_FAILED = "PodGroupSyncFailed"
    POD_GROUP_NOT_FOUND = "PodGroupNotFound"
    POD_GROUP_UNOBSERVED = "PodGroupObservationDisabled"
    POD_GROUP_UNKNOWN = "PodGroupUnknown"
    POD_GROUP_UNSCHEDULABLE = "PodGroupUnschedulable"
    POD_GROUP_MALFORMED = "PodGroupStatusMalformed"
    MIN_TASK_MEMBER = "MinTaskMemberNotEnforced"
    GANG_ERROR = "GangSchedulingError"
    GANG_UNKNOWN = "GangSchedulingUnknown"
    GANG_HEALTHY = "GangSchedulingHealthy"
    DRAIN_STARTED = "PodDrainStarted"
    DRAIN_COMPLETED = "PodDrainCompleted"
    DRAIN_CANCELLED = "PodDrainCancelled"
    DRAIN_INVALID = "PodDrainStateInvalid"
    IN_PLACE_FALLBACK = "InPlaceFallback"
    IN_PLACE_STARTED = "InPlaceUpdateStarted"
    IN_PLACE_COMPLETED = "InPlaceUpdateCompleted"
    TOPOLOGY_PENDING = "TopologyPolicyPendingPodReplacement"
    DELETING_UNHEALTHY = "DeletingUnhealthyPods"
    REPLACING_UNHEALTHY = "ReplacingUnhealthy"
    RECREATING_ALL = "RecreatingAllPods"
    SCALING_DOWN = "ScalingDown"


class ConditionType(StrEnum):
    """Condition types of the three kinds."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    REPLICA_FAILURE = "ReplicaFailure"
    POD_GROUP_SYNCED = "PodGroupSynced"
    GANG_ERROR = "GangSchedulingError"


class TimedCondition(Contract):
    """One observation, with the time of its last update beside that of its last flip."""

    type: str
    """Name of the condition, unique within the list."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: str = ""
    """A word for programs."""
    message: str = Field(default="", max_length=32768)
    """A sentence for people."""
    last_transition_time: str | None = None
    """When status last flipped."""
    last_update_time: str | None = None
    """When the condition was last written; for Progressing, the last progress."""
    last_update_micro_time: str | None = None
    """The same with microseconds."""


ConditionList = Annotated[
    tuple[TimedCondition, ...],
    Extend({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class DisruptionTolerance(Contract):
    """Kept as written. Nothing reads it, as in AIBrix v0.8.0."""

    max_unavailable: IntOrPercent | None = None
    """How many may be away."""


def scaled(value: int | str | None, total: int, *, up: bool) -> int:
    """A count, or the share of ``total`` that a percentage stands for; None is 0. Never negative.

    ValueError when a text is no percentage; the API server lets none through.
    """
    if value is None:
        return 0
    if isinstance(value, int):
        return max(0, value)
    if not value.endswith("%"):
        return max(0, int(value))
    share = int(value.removesuffix("%")) * total / 100
    return max(0, ceil(share) if up else floor(share))


def set_timed(
    conditions: Sequence[TimedCondition],
    type_: str,
    status: ConditionStatus,
    reason: str,
    message: str,
    *,
    now: datetime,
    refresh: bool = False,
) -> tuple[TimedCondition, ...]:
    """``conditions`` with one set. The same status, reason and message leave it untouched, times included, unless
    ``refresh`` asks for a new update time."""
    message = bounded(message)
    before = find_timed(conditions, type_)
    if (
        before is not None
        and not refresh
        and (before.status, before.reason, before.message)
        == (
            status,
            reason,
            message,
        )
    ):
        return tuple(conditions)
    since = before.last_transition_time if before is not None and before.status == status else rfc3339(now)
    after = TimedCondition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        last_update_time=rfc3339(now),
        last_update_micro_time=now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    )
    if before is None:
        return (*conditions, after)
    return tuple(after if c.type == type_ else c for c in conditions)


def find_timed(conditions: Sequence[TimedCondition], type_: str) -> TimedCondition | None:
    """The condition of that type, or None."""
    return next((c for c in conditions if c.type == type_), None)


def without(conditions: Sequence[TimedCondition], *types: str) -> tuple[TimedCondition, ...]:
    """``conditions`` less those of ``types``."""
    return tuple(c for c in conditions if c.type not in types)

"""The ModelClaim kind: one model to serve, asking for room on a card of a warm pool.

The models are the only place that knows fields, defaults, enums and rules; ``crds/`` is generated from them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, WithJsonSchema

from aibrix_operator.api import names
from aibrix_operator.api.conditions import ConditionList
from aibrix_operator.api.schema import Contract, Extend, Int32, Int64, Kind, PrinterColumn, rule

# Generous bounds, so that the API server can estimate what its CEL rules cost.
MAX_TEXT = 4096
MAX_ARGS = 256
MAX_LABELS = 64
MAX_NAME = 63  # the name part of a label or annotation key


class ClaimPhase(StrEnum):
    """A claim in one word, derived from its instances."""

    PENDING = "Pending"
    SCHEDULING = "Scheduling"
    LOADING = "Loading"
    ACTIVATING = "Activating"
    ACTIVE = "Active"
    SLEEPING = "Sleeping"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class InstancePhase(StrEnum):
    """What one engine of a claim is doing."""

    ACTIVATING = "Activating"
    ACTIVE = "Active"
    SLEEPING = "Sleeping"
    FAILED = "Failed"


class ConditionType(StrEnum):
    """Condition types of a claim."""

    INITIALIZED = "Initialized"
    SCHEDULED = "Scheduled"
    READY = "Ready"


class Reason(StrEnum):
    """Condition and Event reasons of a claim."""

    MODEL_CLAIM_INITIALIZED = "ModelClaimInitialized"
    PLACED = "Placed"
    NO_MATCHING_PODS = "NoMatchingPods"
    TOO_LARGE_FOR_ANY_CARD = "TooLargeForAnyCard"
    INVALID_PER_GPU = "InvalidPerGPU"
    MODEL_CLAIM_ACTIVE = "ModelClaimActive"
    ENGINE_STARTING = "EngineStarting"
    ENGINE_SLEEPING = "EngineSleeping"
    ENGINE_FAILED = "EngineFailed"
    ACTIVATE_FAILED = "ActivateFailed"
    INVALID_ENGINE_CONFIG = "InvalidEngineConfig"
    NOT_PLACED = "NotPlaced"
    ACTIVATING = "Activating"
    ACTIVATED = "Activated"
    WOKEN = "Woken"
    UNHEALTHY = "Unhealthy"
    SLEEPING = "Sleeping"
    KV_LIMIT_SET = "KVLimitSet"
    KV_LIMIT_FAILED = "KVLimitFailed"
    KV_LIMIT_NOT_HELD = "KVLimitNotHeld"
    DRAIN_TIMED_OUT = "DrainTimedOut"
    SLEPT_TO_MAKE_ROOM = "SleptToMakeRoom"
    SLEEPING_FOOTPRINT_UNKNOWN = "SleepingFootprintUnknown"
    WAITING_FOR_ROOM = "WaitingForRoom"
    WAKING = "Waking"
    WAKE_FAILED = "WakeFailed"
    WAKE_REQUEST_EXPIRED = "WakeRequestExpired"
    NO_ROOM_TO_WAKE = "NoRoomToWake"
    MOVING = "Moving"
    MOVE_CALLED_OFF = "MoveCalledOff"
    RESCHEDULED = "Rescheduled"
    RESCHEDULE_PENDING = "ReschedulePending"
    RESCHEDULE_FAILED = "RescheduleFailed"
    MAKING_ROOM = "MakingRoom"
    INVALID_POOL_POLICY = "InvalidPoolPolicy"
    POOL_POLICY_VALID = "PoolPolicyValid"


LabelKey = Annotated[str, StringConstraints(max_length=317)]
LabelValue = Annotated[str, StringConstraints(max_length=63)]


class MatchExpression(Contract):
    """One requirement of a label selector."""

    key: LabelKey
    """Label key that the requirement is about."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label relates to the values."""
    values: Annotated[tuple[LabelValue, ...], Extend({"maxItems": MAX_LABELS})] | None = None
    """Values for In and NotIn; left out for Exists and DoesNotExist."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` meet this requirement; an absent label meets NotIn, as in Kubernetes."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in (self.values or ())
            case "NotIn":
                return value is None or value not in (self.values or ())
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None


MatchExpressionField = Annotated[
    MatchExpression,
    Extend(
        {
            "x-kubernetes-validations": [
                rule(
                    "self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 "
                    ": !has(self.values) || self.values.size() == 0",
                    "In and NotIn need values, Exists and DoesNotExist take none",
                )
            ]
        }
    ),
]


class LabelSelector(Contract):
    """Which Pods; all requirements must hold, and an empty selector takes every Pod."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Extend({"maxProperties": MAX_LABELS})] | None = None
    """Labels that must be there with these values."""
    match_expressions: Annotated[tuple[MatchExpressionField, ...], Extend({"maxItems": MAX_LABELS})] | None = None
    """Further requirements."""

    @functools.cached_property
    def text(self) -> str:
        """Equal for selectors that say the same in the same words; for keys."""
        return self.model_dump_json()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` meet every requirement."""
        wanted = self.match_labels or {}
        return all(labels.get(k) == v for k, v in wanted.items()) and all(
            e.matches(labels) for e in self.match_expressions or ()
        )


def _quantity_rule(field: str) -> dict[str, JsonValue]:
    return rule(
        "type(self) == int || isQuantity(self)",
        f"{field} must be a Kubernetes quantity such as 30Gi or 6.5G",
    )


def _quantity(field: str) -> Any:
    return WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [_quantity_rule(field)],
        }
    )


class PerGPU(Contract):
    """What one instance takes on one GPU."""

    maximum_footprint: Annotated[int | str, _quantity("maximumFootprint")]
    """Largest memory beside the KV cache that one instance holds on one GPU: weights, activations, CUDA graphs."""
    kv_floor: Annotated[int | str, _quantity("kvFloor")]
    """KV cache that one instance must have on one GPU to serve at all."""


class EngineConfig(Contract):
    """How the engine is started."""

    args: (
        Annotated[
            dict[
                Annotated[str, StringConstraints(max_length=MAX_TEXT)],
                Annotated[str, StringConstraints(max_length=MAX_TEXT)],
            ],
            Extend({"maxProperties": MAX_ARGS}),
        ]
        | None
    ) = None
    """Engine flags and their values; an empty value stands for a flag without value."""


def _immutable(field: str) -> dict[str, JsonValue]:
    # On spec, not on the field: a field's own transition rule does not run when the field is added or removed.
    return rule(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        f"{field} is immutable",
    )


IMMUTABLE_FIELDS = ("modelName", "podSelector", "artifactURL", "engine", "engineConfig")


class ModelClaimSpec(Contract):
    """What the user wants; only ``perGPU`` may change after creation."""

    model_name: Annotated[str, StringConstraints(max_length=MAX_TEXT)] | None = None
    """Name that clients send as ``model``. Default: the object's name."""
    pod_selector: Annotated[LabelSelector, Extend({"x-kubernetes-map-type": "atomic"})]
    """Pods of the claim's namespace that may serve it, normally by the label claim.model.aibrix.ai/pool."""
    artifact_url: Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT), Field(alias="artifactURL")]
    """Where the weights are: huggingface://…, s3://…, gcs://…, or a path on the Pod."""
    engine: Literal["vllm", "sglang"] = "vllm"
    """Inference engine."""
    replicas: Annotated[Int32, Field(ge=1, le=1)] = 1
    """Instances wanted; only 1 is supported."""
    engine_config: EngineConfig | None = None
    """How the engine is started."""
    per_gpu: Annotated[PerGPU | None, Field(alias="perGPU")] = None
    """What one instance takes on one GPU. A claim without it is not placed."""


class Instance(Contract):
    """One engine of the claim."""

    pod: str
    """Name of the Pod that runs it."""
    port: Int32 = 0
    """Port of the engine on the Pod's address; 0 while it is not known."""
    phase: Annotated[InstancePhase, WithJsonSchema({"type": "string"})] = InstancePhase.ACTIVATING
    """What the engine is doing: Activating, Active, Sleeping or Failed."""
    kv_limit_bytes: Int64 = 0
    """KV limit per GPU that the operator holds the engine to; 0 where no card was divided for it."""
    reason: str = ""
    """Why it is in its phase, where the phase alone does not say."""


class ModelClaimStatus(Contract):
    """What was decided and seen."""

    phase: Annotated[ClaimPhase, Extend({})] | None = None
    """The claim in one word."""
    candidates: Int32 = 0
    """Pods that can take the claim by label, state and GPU count; room is not looked at."""
    desired_replicas: Int32 = 0
    """Instances wanted."""
    ready_replicas: Int32 = 0
    """Instances that serve."""
    instances: tuple[Instance, ...] = ()
    """The claim's engines."""
    conditions: ConditionList = ()
    """Standard conditions: Initialized, Scheduled, Ready."""

    def to_patch(self) -> dict[str, Any]:
        """The status as a merge patch of it: an empty list or text is absent, and absence deletes what was there."""
        patch = self.model_dump(mode="json", by_alias=True)
        patch["instances"] = [{k: v for k, v in i.items() if v != ""} for i in patch["instances"]] or None
        return patch


class ModelClaimSchema(Contract):
    """A ModelClaim serves one model from a warm pool of GPU Pods. It asks for no GPU itself: the operator finds a card
    with room, starts an engine there, and divides the card's KV memory between the engines on it."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    f"self.metadata.name.size() <= {MAX_NAME}",
                    f"metadata.name must be at most {MAX_NAME} characters: it becomes part of annotation keys",
                )
            ]
        }
    )

    api_version: str = Field(default="", description="Version of this representation, model.aibrix.ai/v1alpha1.")
    kind: str = Field(default="", description="ModelClaim.")
    metadata: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(default_factory=dict)
    spec: Annotated[
        ModelClaimSpec,
        Extend({"x-kubernetes-validations": [_immutable(field) for field in IMMUTABLE_FIELDS]}),
    ]
    """What the user wants."""
    status: ModelClaimStatus | None = None
    """What was decided and seen; written by the operator."""


MODELCLAIM = Kind(
    group=names.MODEL_GROUP,
    version=names.MODEL_VERSION,
    kind="ModelClaim",
    plural="modelclaims",
    singular="modelclaim",
    short_names=("mc",),
    model=ModelClaimSchema,
    columns=(
        PrinterColumn("Phase", "string", ".status.phase"),
        PrinterColumn("Desired", "integer", ".status.desiredReplicas"),
        PrinterColumn("Ready", "integer", ".status.readyReplicas"),
        PrinterColumn("Engine", "string", ".spec.engine"),
        PrinterColumn("Artifact", "string", ".spec.artifactURL"),
        PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
        PrinterColumn("Pod", "string", ".status.instances[*].pod", priority=1),
        PrinterColumn("Scheduled", "string", '.status.conditions[?(@.type=="Scheduled")].reason', priority=1),
        PrinterColumn("Why", "string", '.status.conditions[?(@.status=="False")].message', priority=1),
    ),
)

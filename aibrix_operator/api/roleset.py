"""The RoleSet kind: one copy of a service's roles. StormServices make them; nobody else has to."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from aibrix_operator.api import orchestration
from aibrix_operator.api.gang import SchedulingStrategyField
from aibrix_operator.api.orchestration import ConditionList, DisruptionTolerance, IntOrPercent, PodTemplate
from aibrix_operator.api.schema import Contract, Extend, Int32, Int64, Kind, PrinterColumn, rule_unless

_VOLCANO = "self.schedulingStrategy.volcanoSchedulingStrategy"
_HAD = _VOLCANO.replace("self.", "old.")
_SAME_TASKS = (
    f"has(old.schedulingStrategy) && has({_HAD}) && has({_HAD}.minTaskMember) && "
    f"has(self.schedulingStrategy) && has({_VOLCANO}) && has({_VOLCANO}.minTaskMember) && "
    f"{_VOLCANO}.minTaskMember == {_HAD}.minTaskMember"
)
_NO_TASKS = f"!has(self.schedulingStrategy) || !has({_VOLCANO}) || !has({_VOLCANO}.minTaskMember)"


class RoleOrder(StrEnum):
    """How the updates of several roles relate."""

    SEQUENTIAL = "Sequential"
    PARALLEL = "Parallel"
    INTERLEAVE = "Interleave"


class RoleUpdateType(StrEnum):
    """How a role's Pods come to a new template."""

    RECREATE = "Recreate"
    IN_PLACE = "InPlaceIfPossible"


class TopologyScope(StrEnum):
    """Whose Pods are kept together."""

    STORM_SERVICE = "StormService"
    ROLESET = "RoleSet"
    ROLE = "Role"


class HistoricalNode(Contract):
    """A replaced Pod prefers a node that it ran on before."""

    mode: Literal["Preferred"] = "Preferred"
    """Preferred: a preference, no more."""


class ReplacementScheduling(Contract):
    """Where replaced Pods go."""

    historical_node: HistoricalNode | None = None
    """Prefer the nodes of the Pods that were there before."""


class RoleUpdateStrategy(Contract):
    """How one role is updated."""

    type: RoleUpdateType = RoleUpdateType.RECREATE
    """Recreate replaces Pods; InPlaceIfPossible changes images in running Pods where only images differ."""
    max_unavailable: IntOrPercent | None = None
    """Replicas that an update may take away; percentages round down. With maxSurge also 0 it counts as 1."""
    max_surge: IntOrPercent | None = None
    """Replicas beyond the wanted number during an update; percentages round up."""
    replacement_scheduling: ReplacementScheduling | None = None
    """Where replaced Pods go."""


class Drain(Contract):
    """How a Pod is taken out of service before we delete it."""

    timeout_seconds: Annotated[Int32, Field(ge=0)] | None = None
    """Seconds between the mark aibrix.ai/draining and the deletion; 0 or absent: deleted at once."""


class Role(Contract):
    """One role, such as prefill or decode."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name, unique among the roles."""
    replicas: Annotated[Int32, Field(ge=0)] | None = None
    """Replicas in each RoleSet; absent counts as 0."""
    upgrade_order: Annotated[Int32, Field(ge=1)] | None = None
    """Sequential updates go by rising number; roles without one come last."""
    pod_group_size: Annotated[Int32, Field(ge=1, le=orchestration.MAX_GROUP)] | None = None
    """Pods that make one replica; more than 1 makes PodSets."""
    stateful: bool = False
    """Replicas have indexes and keep them."""
    template: PodTemplate = Field(default_factory=dict)
    """Template of the role's Pods."""
    update_strategy: RoleUpdateStrategy = Field(default_factory=RoleUpdateStrategy)
    """How the role is updated."""
    drain: Drain | None = None
    """How Pods are taken out of service before we delete them."""
    scheduling_strategy: SchedulingStrategyField | None = None
    """One PodGroup for each PodSet."""
    disruption_tolerance: DisruptionTolerance | None = None
    """Kept as written; nothing reads it."""

    @property
    def wanted(self) -> int:
        """Replicas, absent as 0."""
        return self.replicas or 0

    @property
    def group_size(self) -> int:
        """Pods to a replica."""
        return self.pod_group_size or 1

    @property
    def drain_s(self) -> int:
        """Seconds of draining; 0: none."""
        return (self.drain.timeout_seconds or 0) if self.drain else 0


RoleField = Annotated[
    Role,
    Extend(
        {
            "x-kubernetes-validations": [
                rule_unless(
                    _SAME_TASKS,
                    f"{_NO_TASKS} || {_VOLCANO}.minTaskMember.all(k, k == self.name)",
                    "a role's minTaskMember may name that role only",
                )
            ]
        }
    ),
]


class TopologyPolicy(Contract):
    """Pods of the scope are kept within one topology domain."""

    scope: TopologyScope
    """Whose Pods belong together."""
    mode: Literal["Preferred", "Required"] = "Preferred"
    """A preference, or a condition."""
    key: Annotated[str, StringConstraints(min_length=1, max_length=317)]
    """Node label whose values are the domains."""


class RoleSetSpec(Contract):
    """Roles that run, are scaled and are updated together."""

    roles: Annotated[
        tuple[RoleField, ...],
        Extend(
            {
                "minItems": 1,
                "maxItems": orchestration.MAX_ROLES,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            }
        ),
    ]
    """The roles."""
    update_strategy: RoleOrder = RoleOrder.SEQUENTIAL
    """Sequential: role by role. Parallel: all at once. Interleave: in equal steps."""
    scheduling_strategy: SchedulingStrategyField | None = None
    """One PodGroup for the whole RoleSet."""
    topology_policy: TopologyPolicy | None = None
    """Keep Pods within one topology domain. Existing Pods are never moved."""


RoleSetSpecField = Annotated[
    RoleSetSpec,
    Extend(
        {
            "x-kubernetes-validations": [
                rule_unless(
                    "has(old.schedulingStrategy) && old.roles.exists(r, has(r.schedulingStrategy))",
                    "!has(self.schedulingStrategy) || !self.roles.exists(r, has(r.schedulingStrategy))",
                    "a schedulingStrategy of the RoleSet and one of a role exclude each other",
                ),
                rule_unless(
                    _SAME_TASKS + " && self.roles.size() == old.roles.size()",
                    f"{_NO_TASKS} || {_VOLCANO}.minTaskMember.all(k, self.roles.exists(r, r.name == k))",
                    "minTaskMember may name roles only",
                ),
            ]
        }
    ),
]


class RoleStatus(Contract):
    """One role, counted. Replicas of more than one Pod are counted as one."""

    name: str
    """The role's name."""
    replicas: Int32 = 0
    """Replicas that are neither ended nor on their way out."""
    ready_replicas: Int32 = 0
    """Of these, ready."""
    not_ready_replicas: Int32 = 0
    """Of these, not ready."""
    updated_replicas: Int32 = 0
    """Of these, of the present template."""
    updated_ready_replicas: Int32 = 0
    """Ready and of the present template."""


RoleStatuses = Annotated[
    tuple[RoleStatus, ...], Extend({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})
]


class RoleSetStatus(Contract):
    """What was seen."""

    observed_generation: Int64 = 0
    """The generation that this was written for; 0 where AIBrix's own controller wrote it."""
    roles: RoleStatuses = ()
    """The roles, counted."""
    conditions: ConditionList = ()
    """Ready, ReplicaFailure and, with Volcano, PodGroupSynced and GangSchedulingError."""


class RoleSetSchema(Contract):
    """A RoleSet is one copy of all roles of a StormService, made and changed by it."""

    api_version: str = Field(
        default="", description="Version of this representation, orchestration.aibrix.ai/v1alpha1."
    )
    kind: str = Field(default="", description="RoleSet.")
    metadata: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(default_factory=dict)
    spec: RoleSetSpecField
    """What its StormService wants."""
    status: RoleSetStatus | None = None
    """What was seen; written by the operator."""


ROLESET = Kind(
    group=orchestration.GROUP,
    version=orchestration.VERSION,
    kind="RoleSet",
    plural="rolesets",
    singular="roleset",
    model=RoleSetSchema,
    columns=(
        PrinterColumn("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
        PrinterColumn("Revision", "string", r".metadata.labels.storm-service-revision"),
        PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
        PrinterColumn("Why", "string", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ),
)

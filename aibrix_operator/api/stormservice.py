"""The StormService kind: a service of several roles (prefill, decode, router), rolled out and scaled as one."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema

from aibrix_operator.api import orchestration
from aibrix_operator.api.modelclaim import LabelSelector
from aibrix_operator.api.orchestration import ConditionList, DisruptionTolerance, IntOrPercent
from aibrix_operator.api.roleset import RoleSetSpecField, RoleStatuses
from aibrix_operator.api.schema import Contract, Extend, Int32, Int64, Kind, PrinterColumn, Scale, rule

MAX_NAME = 63
PODSET_NAME_ROOM = 27
"""Characters that the service's name and a role's may have together, where the role has PodSets: 36 more follow."""


class Mode(StrEnum):
    """What a replica is."""

    REPLICA = "Replica"
    POOLED = "Pooled"


class UpdateType(StrEnum):
    """How RoleSets come to a new template."""

    ROLLING = "RollingUpdate"
    IN_PLACE = "InPlaceUpdate"


class UpdateStrategy(Contract):
    """How RoleSets are updated."""

    type: UpdateType = UpdateType.ROLLING
    """RollingUpdate replaces RoleSets; InPlaceUpdate changes them and leaves the rest to their roles."""
    max_unavailable: IntOrPercent | None = None
    """RoleSets that an update may take away; percentages round down. With maxSurge also 0 it counts as 1."""
    max_surge: IntOrPercent | None = None
    """RoleSets beyond the wanted number during an update; percentages round up."""


class TemplateMetadata(Contract):
    """Labels and annotations of RoleSets."""

    labels: dict[str, str] | None = None
    """Labels; the selector must match them."""
    annotations: dict[str, str] | None = None
    """Annotations."""


class RoleSetTemplate(Contract):
    """What each RoleSet is made of."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of each RoleSet."""
    spec: RoleSetSpecField | None = None
    """Spec of each RoleSet."""


class StormServiceSpec(Contract):
    """What the user wants."""

    replicas: Annotated[Int32, Field(ge=0)] | None = None
    """RoleSets wanted; absent counts as 1."""
    mode: Mode | None = None
    """Replica: an update replaces whole RoleSets. Pooled: one RoleSet, whose roles are updated and scaled in it."""
    selector: Annotated[LabelSelector, Extend({"x-kubernetes-map-type": "atomic"})]
    """Must match the template's labels. RoleSets are found by their owner, not by it."""
    stateful: bool = False
    """Kept as written: each role says for itself."""
    template: RoleSetTemplate = Field(default_factory=RoleSetTemplate)
    """What each RoleSet is made of; the only part that has revisions."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How RoleSets are updated."""
    revision_history_limit: Int32 | None = None
    """Old revisions kept beside those in use; absent counts as 10."""
    paused: bool = False
    """No update starts or goes on; scaling keeps the shares of old and new."""
    progress_deadline_seconds: Int32 = 600
    """Seconds without progress after which Progressing turns False. Nothing else comes of it."""
    disruption_tolerance: DisruptionTolerance | None = None
    """Kept as written; nothing reads it."""

    @property
    def wanted(self) -> int:
        """RoleSets wanted, absent as 1."""
        return 1 if self.replicas is None else self.replicas

    @property
    def is_in_place(self) -> bool:
        """RoleSets are changed and not replaced: an explicit mode wins over the strategy."""
        if self.mode is None:
            return self.update_strategy.type is UpdateType.IN_PLACE
        return self.mode is Mode.POOLED


class StormServiceStatus(Contract):
    """What was decided and seen."""

    observed_generation: Int64 = 0
    """The generation that this was written for."""
    replicas: Int32 = 0
    """RoleSets, those on their way out included."""
    ready_replicas: Int32 = 0
    """RoleSets that are ready."""
    not_ready_replicas: Int32 = 0
    """RoleSets that are not."""
    current_replicas: Int32 = 0
    """RoleSets of the current revision."""
    updated_replicas: Int32 = 0
    """RoleSets of the update revision whose every role has all its replicas updated."""
    updated_ready_replicas: Int32 = 0
    """Of these, ready."""
    current_revision: str = ""
    """Name of the revision that the service comes from."""
    update_revision: str = ""
    """Name of the revision that the service goes to."""
    collision_count: Int32 = 0
    """How often a revision's name was taken by another."""
    scaling_target_selector: str = ""
    """Selector of the service's Pods, for autoscalers."""
    role_statuses: RoleStatuses = ()
    """The roles, summed over RoleSets, by name."""
    conditions: ConditionList = ()
    """Ready, Progressing, ReplicaFailure and, with Volcano, PodGroupSynced and GangSchedulingError."""


class StormServiceSchema(Contract):
    """A StormService runs several roles, such as prefill and decode, as one service: it makes RoleSets, rolls new
    templates out over them, and keeps the service's old revisions."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    f"self.metadata.name.size() <= {MAX_NAME}",
                    f"metadata.name must be at most {MAX_NAME} characters: it becomes a label and a DNS name",
                ),
                rule(
                    "!has(self.spec.template) || !has(self.spec.template.spec) || self.spec.template.spec.roles.all(r, "
                    "!has(r.podGroupSize) || r.podGroupSize <= 1 || "
                    f"self.metadata.name.size() + r.name.size() <= {PODSET_NAME_ROOM})",
                    "metadata.name and the name of a role with podGroupSize above 1 may have "
                    f"{PODSET_NAME_ROOM} characters together",
                ),
            ]
        }
    )

    api_version: str = Field(
        default="", description="Version of this representation, orchestration.aibrix.ai/v1alpha1."
    )
    kind: str = Field(default="", description="StormService.")
    metadata: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(default_factory=dict)
    spec: Annotated[
        StormServiceSpec,
        Extend(
            {
                "x-kubernetes-validations": [
                    rule(
                        "!has(self.mode) || self.mode != 'Pooled' || !has(self.replicas) || self.replicas <= 1",
                        "mode Pooled takes one replica at most: scale its roles",
                    ),
                    rule(
                        "!has(self.mode) || self.mode != 'Replica' || !has(self.updateStrategy) || "
                        "!has(self.updateStrategy.type) || self.updateStrategy.type != 'InPlaceUpdate'",
                        "mode Replica replaces RoleSets and excludes InPlaceUpdate",
                    ),
                ]
            }
        ),
    ]
    """What the user wants."""
    status: StormServiceStatus | None = None
    """What was decided and seen; written by the operator."""


STORMSERVICE = Kind(
    group=orchestration.GROUP,
    version=orchestration.VERSION,
    kind="StormService",
    plural="stormservices",
    singular="stormservice",
    model=StormServiceSchema,
    scale=Scale(".spec.replicas", ".status.replicas", ".status.scalingTargetSelector"),
    columns=(
        PrinterColumn("Desired", "integer", ".spec.replicas"),
        PrinterColumn("Ready", "integer", ".status.readyReplicas"),
        PrinterColumn("Updated", "integer", ".status.updatedReplicas"),
        PrinterColumn("Revision", "string", ".status.updateRevision"),
        PrinterColumn("Paused", "boolean", ".spec.paused"),
        PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
        PrinterColumn("Available", "string", '.status.conditions[?(@.type=="Ready")].status', priority=1),
        PrinterColumn("Progress", "string", '.status.conditions[?(@.type=="Progressing")].reason', priority=1),
        PrinterColumn("Why", "string", '.status.conditions[?(@.type=="ReplicaFailure")].message', priority=1),
    ),
)

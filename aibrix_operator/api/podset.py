"""The PodSet kind: one replica of a role that takes several Pods."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from aibrix_operator.api import orchestration
from aibrix_operator.api.gang import SchedulingStrategyField
from aibrix_operator.api.orchestration import ConditionList, PodTemplate
from aibrix_operator.api.roleset import Drain
from aibrix_operator.api.schema import Contract, Int32, Kind, PrinterColumn


class RecoveryPolicy(StrEnum):
    """What becomes of the others when a member is lost."""

    REPLACE_UNHEALTHY = "ReplaceUnhealthy"
    RECREATE = "Recreate"


class PodSetPhase(StrEnum):
    """A PodSet in one word."""

    PENDING = "Pending"
    RUNNING = "Running"
    READY = "Ready"
    FAILED = "Failed"


class PodSetSpec(Contract):
    """Pods that together are one replica."""

    pod_group_size: Annotated[Int32, Field(ge=2, le=orchestration.MAX_GROUP)]
    """How many Pods."""
    template: PodTemplate = Field(default_factory=dict)
    """Their template."""
    stateful: bool = False
    """Kept as written: members have indexes in any case."""
    recovery_policy: RecoveryPolicy = RecoveryPolicy.REPLACE_UNHEALTHY
    """ReplaceUnhealthy makes lost members anew; Recreate makes all of them anew."""
    scheduling_strategy: SchedulingStrategyField | None = None
    """A PodGroup for the members."""
    drain: Drain | None = None
    """How members are taken out of service before we delete them."""

    @property
    def drain_s(self) -> int:
        """Seconds of draining; 0: none."""
        return (self.drain.timeout_seconds or 0) if self.drain else 0


class PodSetStatus(Contract):
    """What was seen."""

    ready_pods: Int32 = 0
    """Members that are ready."""
    total_pods: Int32 = 0
    """Members that have not ended."""
    phase: PodSetPhase | None = None
    """Ready when all members are, Running when some are, else Pending."""
    conditions: ConditionList = ()
    """Not used, as in AIBrix v0.8.0."""


class PodSetSchema(Contract):
    """A PodSet is one replica of a role that takes several Pods, made by a RoleSet."""

    api_version: str = Field(
        default="", description="Version of this representation, orchestration.aibrix.ai/v1alpha1."
    )
    kind: str = Field(default="", description="PodSet.")
    metadata: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(default_factory=dict)
    spec: PodSetSpec
    """What its RoleSet wants."""
    status: PodSetStatus | None = None
    """What was seen; written by the operator."""


PODSET = Kind(
    group=orchestration.GROUP,
    version=orchestration.VERSION,
    kind="PodSet",
    plural="podsets",
    singular="podset",
    model=PodSetSchema,
    columns=(
        PrinterColumn("ReadyPods", "integer", ".status.readyPods"),
        PrinterColumn("TotalPods", "integer", ".status.totalPods"),
        PrinterColumn("Phase", "string", ".status.phase"),
        PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
    ),
)

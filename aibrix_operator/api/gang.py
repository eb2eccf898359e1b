"""Gang scheduling: the settings of the three schedulers that know PodGroups, and the marks their Pods carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from aibrix_operator.api.orchestration import MAX_ROLES
from aibrix_operator.api.schema import Contract, Extend, Int32, rule

Anything = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]

Quantity = Annotated[
    int | str,
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
]
ResourceList = dict[str, Quantity]


class Scheduler(StrEnum):
    """Whose PodGroups they are."""

    GODEL = "godel"
    COSCHEDULING = "coscheduling"
    VOLCANO = "volcano"


@dataclass(frozen=True, slots=True)
class PodGroupKind:
    """Where a scheduler's PodGroups live, and how a Pod says that it belongs to one."""

    group: str
    version: str
    labels: tuple[str, ...]
    """Pod labels that hold the PodGroup's name."""
    annotations: tuple[str, ...]
    """Pod annotations that hold it."""


POD_GROUPS: Mapping[Scheduler, PodGroupKind] = {
    Scheduler.GODEL: PodGroupKind(
        "scheduling.godel.kubewharf.io",
        "v1alpha1",
        ("godel.bytedance.com/pod-group-name",),
        ("godel.bytedance.com/pod-group-name",),
    ),
    Scheduler.COSCHEDULING: PodGroupKind("scheduling.x-k8s.io", "v1alpha1", ("scheduling.x-k8s.io/pod-group",), ()),
    Scheduler.VOLCANO: PodGroupKind(
        "scheduling.volcano.sh",
        "v1beta1",
        ("scheduling.k8s.io/group-name",),
        ("scheduling.k8s.io/group-name",),
    ),
}
VOLCANO_TASK = "volcano.sh/task-spec"
VOLCANO_SCHEDULER = "volcano"


class GodelStrategy(Contract):
    """The spec of a Godel PodGroup."""

    min_member: Int32 | None = None
    """Pods that must fit together."""
    priority_class_name: str | None = None
    """Priority of the group."""
    schedule_timeout_seconds: Int32 | None = None
    """How long the scheduler waits for the whole group."""
    application: str | None = None
    """Application that the group belongs to."""
    affinity: Anything | None = None
    """Affinity of the group's Pods to each other."""


class CoschedulingStrategy(Contract):
    """The spec of a PodGroup of the coscheduling plugin."""

    min_member: Annotated[Int32, Field(ge=1)] | None = None
    """Pods that must fit together."""
    min_resources: ResourceList | None = None
    """Resources that must be free for the group."""
    schedule_timeout_seconds: Int32 | None = None
    """How long the scheduler waits for the whole group."""


class VolcanoStrategy(Contract):
    """The spec of a Volcano PodGroup."""

    min_member: Annotated[Int32, Field(ge=1)]
    """Pods that must fit together."""
    min_task_member: (
        Annotated[dict[str, Annotated[Int32, Field(ge=1)]], Extend({"maxProperties": MAX_ROLES})] | None
    ) = None
    """Role name → Pods of it that must fit together."""
    queue: str | None = None
    """Volcano queue."""
    priority_class_name: str | None = None
    """Priority of the group."""
    min_resources: ResourceList | None = None
    """Resources that must be free for the group."""


VolcanoField = Annotated[
    VolcanoStrategy,
    Extend(
        {
            "x-kubernetes-validations": [
                rule(
                    "!has(self.minTaskMember) || "
                    "self.minTaskMember.map(k, self.minTaskMember[k]).sum() <= self.minMember",
                    "minMember must be at least the sum of minTaskMember",
                )
            ]
        }
    ),
]


class SchedulingStrategy(Contract):
    """Settings of one gang scheduler; a PodGroup is made of them where its API is served."""

    godel_scheduling_strategy: GodelStrategy | None = None
    """PodGroup of the Godel scheduler."""
    coscheduling_scheduling_strategy: CoschedulingStrategy | None = None
    """PodGroup of the coscheduling plugin."""
    volcano_scheduling_strategy: VolcanoField | None = None
    """PodGroup of Volcano."""

    def chosen(self) -> tuple[Scheduler, dict[str, Any]] | None:
        """The scheduler and its PodGroup's spec; None when no strategy is given."""
        for scheduler, strategy in (
            (Scheduler.GODEL, self.godel_scheduling_strategy),
            (Scheduler.COSCHEDULING, self.coscheduling_scheduling_strategy),
            (Scheduler.VOLCANO, self.volcano_scheduling_strategy),
        ):
            if strategy is not None:
                return scheduler, strategy.model_dump(mode="json", by_alias=True, exclude_none=True)
        return None


SchedulingStrategyField = Annotated[SchedulingStrategy, Extend({"maxProperties": 1})]

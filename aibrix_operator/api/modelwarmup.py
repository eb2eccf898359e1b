"""The ModelWarmup kind: images, files and weights that are on nodes before anybody needs them.

The API server judges all that its rules can; what is left comes out when a Job is created, and shows in the status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from aibrix_operator.api import names
from aibrix_operator.api.conditions import ConditionList
from aibrix_operator.api.modelclaim import LabelSelector
from aibrix_operator.api.schema import Contract, Extend, Int32, Int64, Kind, PrinterColumn, rule
from aibrix_operator.api.warmup_content import Custom, ImagePreload, ImageSpec, Weights

WARMUP_LABEL = "model.aibrix.ai/warmup"
REVISION_LABEL = "model.aibrix.ai/revision"
NODE_ANNOTATION = "model.aibrix.ai/target-node"
NAME_ANNOTATION = "model.aibrix.ai/warmup-name"
ENABLED_LABEL = "model.aibrix.ai/warmup-enabled"
NODE_POOL_LABEL = "resource-pool.aibrix.ai/name"
ROLE_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

MAX_TARGETS = 1000
MAX_DETAILS = 256
"""Entries of ``status.targets``."""


class WarmupPhase(StrEnum):
    """A warmup in one word. The last three are for good."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DEGRADED = "Degraded"

    @property
    def is_terminal(self) -> bool:
        """Nothing changes any more."""
        return self in (WarmupPhase.SUCCEEDED, WarmupPhase.FAILED, WarmupPhase.DEGRADED)


class TargetPhase(StrEnum):
    """What one node is doing. A node that has succeeded is only counted."""

    FAILED = "Failed"
    RUNNING = "Running"
    PENDING = "Pending"


class ConditionType(StrEnum):
    """Condition types of a warmup, all three always there."""

    COMPLETE = "Complete"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"


class Reason(StrEnum):
    """Reasons of conditions, of targets, and of Events."""

    IMAGE_PRELOAD_SUCCEEDED = "ImagePreloadSucceeded"
    WARMUP_SUCCEEDED = "WarmupSucceeded"
    NO_TARGETS_RESOLVED = "NoTargetsResolved"
    JOBS_RUNNING = "JobsRunning"
    NODE_FAILED = "NodeFailed"
    TARGET_LIMIT_EXCEEDED = "TargetLimitExceeded"
    INVALID_SPEC = "InvalidSpec"
    NOT_ACTIVE = "NotActive"
    NODE_NOT_FOUND = "NodeNotFound"
    NODE_NOT_AUTHORIZED = "NodeNotAuthorized"
    JOB_FAILED = "JobFailed"
    JOB_REFUSED = "JobRefused"
    STARTED = "Started"


NodeName = Annotated[str, StringConstraints(min_length=1, max_length=253)]


class NodeNames(Contract):
    """Nodes by name."""

    names: Annotated[tuple[NodeName, ...], Field(min_length=1, max_length=MAX_TARGETS)]
    """The nodes' names. One that does not exist counts as failed."""


NodeSelector = Annotated[
    LabelSelector,
    Extend(
        {
            "x-kubernetes-map-type": "atomic",
            "x-kubernetes-validations": [
                rule(
                    "(has(self.matchLabels) && self.matchLabels.size() > 0) || "
                    "(has(self.matchExpressions) && self.matchExpressions.size() > 0)",
                    "an empty selector would take every node: name at least one requirement",
                )
            ],
        }
    ),
]


class TargetSpec(Contract):
    """Some nodes, by name or by label."""

    nodes: NodeNames | None = None
    """Nodes by name."""
    node_selector: NodeSelector | None = None
    """Nodes by label, those that come later included, until the warmup is over."""


Target = Annotated[
    TargetSpec,
    Extend(
        {
            "x-kubernetes-validations": [
                rule("has(self.nodes) != has(self.nodeSelector)", "exactly one of nodes and nodeSelector must be set")
            ]
        }
    ),
]


class Policies(Contract):
    """How the Jobs run."""

    parallelism: Annotated[Int32, Field(ge=1)] = 8
    """Nodes that are worked on at once."""
    job_timeout_seconds: Annotated[Int64, Field(ge=1)] = 1800
    """After so long a node has failed."""
    retry_limit: Annotated[Int32, Field(ge=0)] = 2
    """How often a Pod that failed is tried again."""
    ttl_seconds_after_finished: Annotated[Int32, Field(ge=1)] = 3600
    """How long Jobs stay after they finished, once all of the warmup is over."""


def _free_of(generated: str, count: str) -> dict[str, Any]:
    """No custom container has a generated name."""
    return rule(
        "!has(self.custom) || ["
        "has(self.custom.containers) ? self.custom.containers.map(c, c.name) : [], "
        "has(self.custom.initContainers) ? self.custom.initContainers.map(c, c.name) : []"
        f"].all(l, l.all(n, !n.matches('^{generated}-(0|[1-9][0-9]?)$') || "
        f"int(n.substring({len(generated) + 1})) >= {count}))",
        f"a custom container must not be named as a generated one, {generated}-0 and on",
    )


_IMAGES = "(has(self.imagePreload) && has(self.imagePreload.images) ? self.imagePreload.images.size() : 0)"
_WEIGHTS = "(has(self.weights) ? self.weights.artifacts.size() : 0)"
_RULES = [
    rule("self == oldSelf", "spec is immutable: delete the warmup and create it anew"),
    rule(
        f"{_IMAGES} + {_WEIGHTS} > 0 || "
        "(has(self.custom) && has(self.custom.containers) && self.custom.containers.size() > 0)",
        "at least one image, artifact or custom container is required: init containers alone are not enough",
    ),
    rule(
        f"self.targets.map(t, has(t.nodes) ? t.nodes.names.size() : 0).sum() <= {MAX_TARGETS}",
        f"targets name more than {MAX_TARGETS} nodes",
    ),
    _free_of("image", _IMAGES),
    _free_of("weights", _WEIGHTS),
]


class ModelWarmupSpec(Contract):
    """What the user wants; nothing of it changes after creation."""

    mode: Literal["", "Once"] = "Once"
    """Once: the warmup ends."""
    targets: Annotated[tuple[Target, ...], Field(min_length=1, max_length=MAX_TARGETS)]
    """The nodes. A node must be open to warmups and belong to the namespace's pool."""
    image_preload: ImagePreload | None = None
    """Images that the nodes pull."""
    custom: Custom | None = None
    """Containers that do anything else."""
    weights: Weights | None = None
    """Model files that the nodes fetch."""
    policies: Policies | None = None
    """How the Jobs run."""

    @property
    def images(self) -> tuple[ImageSpec, ...]:
        """All images to pull."""
        return self.image_preload.images if self.image_preload is not None else ()

    @property
    def effective_policies(self) -> Policies:
        """With defaults."""
        return self.policies or Policies()


class TargetStatus(Contract):
    """One node that has not succeeded."""

    node_name: str
    """The node."""
    source: str = ""
    """The first entry of targets that it comes from."""
    source_count: Int32 = 0
    """Entries of targets that it comes from."""
    revision: str = ""
    """The revision that it is to have."""
    job_name: str = ""
    """Its Job; empty while there is none."""
    phase: Annotated[TargetPhase, WithJsonSchema({"type": "string"})]
    """Pending, Running or Failed."""
    reason: str = ""
    """Why, in a word."""
    message: str = ""
    """Why, in a sentence."""
    last_transition_time: str = ""
    """When phase, reason or message last changed."""


class ModelWarmupStatus(Contract):
    """What was seen."""

    phase: Annotated[WarmupPhase, WithJsonSchema({"type": "string"})] | None = None
    """Pending, Running, Succeeded, Failed or Degraded; the last three are for good."""
    observed_revision: str = ""
    """What the nodes are to have: a hash over images, custom containers and weights."""
    desired_nodes: Int32 = 0
    """Nodes that are wanted, those that cannot be used included."""
    active_nodes: Int32 = 0
    """Nodes whose Job runs."""
    succeeded_nodes: Int32 = 0
    """Nodes that are done."""
    failed_nodes: Int32 = 0
    """Nodes whose Job failed, that do not exist or may not be used."""
    progress: str = ""
    """Nodes that are done, of all that are wanted, such as 3/5."""
    fetched_bytes: Int64 = 0
    """Weights that the nodes have fetched, all together, as far as their Jobs have said."""
    omitted_target_details: Int32 = 0
    """Entries that targets has no place for."""
    start_time: str = ""
    """When work began."""
    completion_time: str = ""
    """When it ended for good."""
    targets: tuple[TargetStatus, ...] = ()
    """Nodes that have not succeeded: the failed ones first, then those that run, then those that wait."""
    conditions: ConditionList = ()
    """Complete, Progressing and Degraded."""

    def to_object(self) -> dict[str, Any]:
        """As it is published: what is empty is left out, but lists and counts are there."""
        kept = self.model_dump(mode="json", by_alias=True)
        kept["targets"] = [{k: v for k, v in t.items() if v not in ("", 0)} for t in kept["targets"]]
        return {k: v for k, v in kept.items() if v not in ("", None)}


class ModelWarmupSchema(Contract):
    """A ModelWarmup brings images, files and weights onto nodes once, before they are needed: one Job for each node,
    pinned to it, a few at a time."""

    api_version: str = Field(default="", description="Version of this representation, model.aibrix.ai/v1alpha1.")
    kind: str = Field(default="", description="ModelWarmup.")
    metadata: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(default_factory=dict)
    spec: Annotated[ModelWarmupSpec, Extend({"x-kubernetes-validations": _RULES})]
    """What the user wants."""
    status: ModelWarmupStatus | None = None
    """What was seen; written by the operator."""


MODELWARMUP = Kind(
    group=names.MODEL_GROUP,
    version=names.MODEL_VERSION,
    kind="ModelWarmup",
    plural="modelwarmups",
    singular="modelwarmup",
    short_names=("mw",),
    model=ModelWarmupSchema,
    columns=(
        PrinterColumn("Phase", "string", ".status.phase"),
        PrinterColumn("Desired", "integer", ".status.desiredNodes"),
        PrinterColumn("Succeeded", "integer", ".status.succeededNodes"),
        PrinterColumn("Failed", "integer", ".status.failedNodes"),
        PrinterColumn("Progress", "string", ".status.progress"),
        PrinterColumn("Bytes", "integer", ".status.fetchedBytes", priority=1),
        PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
    ),
)

"""Which nodes a warmup is for, and which of them it may use. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from aibrix_operator.api.modelwarmup import ENABLED_LABEL, NODE_POOL_LABEL, ROLE_LABELS, ModelWarmupSpec, Reason

_WHY = {
    Reason.NODE_NOT_FOUND: "node was not found",
    Reason.NODE_NOT_AUTHORIZED: "node is not authorized for this namespace",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A node that gets a Job."""

    node: str
    source: str
    """The first of its sources in the order of their texts, such as ``target[0]``."""
    source_count: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A node that is wanted and cannot be used. It counts as failed."""

    node: str
    reason: Reason

    @property
    def message(self) -> str:
        return _WHY[self.reason]


@dataclass(frozen=True, slots=True)
class Resolved:
    """All nodes that are wanted, each once, by name."""

    targets: tuple[Target, ...]
    missing: tuple[Missing, ...]

    @property
    def count(self) -> int:
        return len(self.targets) + len(self.missing)


def resolve(spec: ModelWarmupSpec, pool: str, nodes: Mapping[str, Mapping[str, str]]) -> Resolved:
    """``nodes``: name → labels of every node. A node that a selector matches and that may not be used is missing too:
    the user is to see it."""
    sources: dict[str, set[str]] = defaultdict(set)
    for i, entry in enumerate(spec.targets):
        if entry.nodes is not None:
            found = set(entry.nodes.names)
        else:
            assert entry.node_selector is not None, "the schema asks for one of both"
            found = {name for name, labels in nodes.items() if entry.node_selector.matches(labels)}
        for name in found:
            sources[name].add(f"target[{i}]")
    targets, missing = [], []
    for name in sorted(sources):
        labels = nodes.get(name)
        if labels is None:
            missing.append(Missing(name, Reason.NODE_NOT_FOUND))
        elif not is_authorized(labels, pool):
            missing.append(Missing(name, Reason.NODE_NOT_AUTHORIZED))
        else:
            targets.append(Target(name, min(sources[name]), len(sources[name])))
    return Resolved(tuple(targets), tuple(missing))


def is_authorized(labels: Mapping[str, str], pool: str) -> bool:
    """Whether a namespace of ``pool`` may warm up a node of these labels: it is open to it, of the same pool, and no
    control plane, which the mere presence of a role label says."""
    return (
        labels.get(ENABLED_LABEL) == "true"
        and bool(pool)
        and labels.get(NODE_POOL_LABEL) == pool
        and not any(role in labels for role in ROLE_LABELS)
    )

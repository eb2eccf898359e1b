"""What one pass looks at. Frozen values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aibrix_operator.api.modelwarmup import ModelWarmupSpec, ModelWarmupStatus
from aibrix_operator.controller.steps import Ref


class JobState(StrEnum):
    """How far a Job is. One that failed and tries again is active."""

    ACTIVE = "Active"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Report:
    """What a container that fetches weights said as it ended."""

    fetched_bytes: int = 0
    reason: str = ""
    """Why it failed; empty where it did not."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A Job that the warmup controls."""

    ref: Ref
    node: str
    """As its annotation says."""
    revision: str
    state: JobState
    reason: str = ""
    message: str = ""
    has_ttl: bool = False
    is_deleting: bool = False
    reports: tuple[Report, ...] = ()
    """Of its Pods' containers that fetch weights, the latest of each name."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server did not take a Job."""

    node: str
    text: str
    is_of_this_name: bool
    """Another object has the Job's name: the other nodes are not concerned."""


@dataclass(frozen=True, slots=True)
class Warmup:
    """Everything about one warmup."""

    ref: Ref
    generation: int
    spec: ModelWarmupSpec | None
    """None: it cannot be read."""
    problem: str
    """Why it cannot be read."""
    custom: Mapping[str, Any]
    """As the user wrote it."""
    status: ModelWarmupStatus
    pool: str
    """The namespace's pool; empty: the namespace has none."""
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Node → its labels, of all nodes of the cluster."""
    jobs: tuple[Job, ...] = ()
    """Those that it controls and that carry its label."""
    taken: frozenset[str] = frozenset()
    """Names of Jobs that it controls and that carry another label: nobody knows what they are."""
    refusals: tuple[Refusal, ...] = ()

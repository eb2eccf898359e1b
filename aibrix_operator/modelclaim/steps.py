"""What a pass may ask for: the steps of a plan. Each is safe now, idempotent, and may be lost or repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from aibrix_operator.api.modelclaim import ModelClaimStatus
from aibrix_operator.runtime_api import wire


@dataclass(frozen=True, slots=True)
class PodRef:
    """Which Pod a step is for; the UID guards against a namesake that came later."""

    namespace: str
    name: str
    uid: str
    ip: str


@dataclass(frozen=True, slots=True)
class PoolRef:
    """Which Deployment an Event is about."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """Which claim a step is for, as it was read."""

    namespace: str
    name: str
    uid: str
    resource_version: str


class EventType(StrEnum):
    """Types of Events."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Note:
    """One Event on a claim."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Write KV limits on one Pod, one after the other; the first that fails ends the step."""

    pod: PodRef
    writes: tuple[wire.KVLimitRequest, ...]


@dataclass(frozen=True, slots=True)
class Activate:
    """Start an engine whose instance is recorded."""

    pod: PodRef
    claim_uid: str
    request: wire.ActivateRequest


@dataclass(frozen=True, slots=True)
class Deactivate:
    """Stop an engine whose route is gone."""

    pod: PodRef
    claim_uid: str
    request: wire.DeactivateRequest


@dataclass(frozen=True, slots=True)
class Sleep:
    """Put an engine to sleep that is off its route and was seen idle."""

    pod: PodRef
    claim_uid: str
    request: wire.SleepRequest


@dataclass(frozen=True, slots=True)
class Wake:
    """Wake an engine whose seat is free."""

    pod: PodRef
    claim_uid: str
    request: wire.WakeRequest


@dataclass(frozen=True, slots=True)
class Annotate:
    """Write or delete (None) route and wake annotations of one Pod."""

    pod: PodRef
    values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Publish a claim's status, provided that it is still the object that was read; then raise ``notes``."""

    claim: ClaimRef
    status: ModelClaimStatus
    notes: tuple[Note, ...] = ()
    is_record: bool = True
    """Whether it changes the instances, which other steps wait for; else it only tells people something."""


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Add (``present``) or remove our finalizer."""

    claim: ClaimRef
    present: bool


RuntimeStep: TypeAlias = SetLimits | Activate | Deactivate | Sleep | Wake
Step: TypeAlias = RuntimeStep | Annotate | WriteStatus | SetFinalizer


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pass asks for. The order of ``steps`` means nothing: what depends on another waits for a later pass."""

    steps: tuple[Step, ...] = ()
    notes: tuple[tuple[ClaimRef | PoolRef, Note], ...] = ()
    """Events that hang on no status write."""
    look_again_s: Mapping[str, float] = field(default_factory=dict)
    """Pod UID → seconds between readings of its runtime until the next plan, for every Pod of the namespace."""
    wake_after_s: float | None = None
    """When the next pass over the same is due for reasons of time alone."""
    wake_pods_after_s: Mapping[str, float] = field(default_factory=dict)
    """Pod name → when a pass over it alone is."""
    wants_whole: bool = False
    """Of some Pods' plan: what was found concerns others too, so the whole is to be planned instead."""

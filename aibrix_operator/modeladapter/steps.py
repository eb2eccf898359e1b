"""What a plan may hold: each step is safe now, may be lost or done twice, and says all that its doing needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from aibrix_operator.api.modeladapter import ModelAdapterStatus
from aibrix_operator.modeladapter.snapshot import Target


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Before anything else: what is loaded must be unloaded."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """No engine has it any more. Its route in another namespace, which no owner reference reaches, is removed first."""


@dataclass(frozen=True, slots=True)
class Annotate:
    """Set and delete annotations of the adapter; all keys are the controller's own."""

    annotations: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the status."""

    status: ModelAdapterStatus


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the headless Service."""


@dataclass(frozen=True, slots=True)
class WriteSlice:
    """Create or rewrite the EndpointSlice of one engine port."""

    port: int
    addresses: Sequence[str]
    """Sorted."""


@dataclass(frozen=True, slots=True)
class MakeRoute:
    """Create the HTTPRoute, and the ReferenceGrant that it needs, unless they are there."""


@dataclass(frozen=True, slots=True)
class RemoveRoute:
    """Delete the HTTPRoute, and the ReferenceGrant that nobody else needs."""


@dataclass(frozen=True, slots=True)
class Load:
    """Have a Pod's engine load the adapter."""

    target: Target
    artifact_url: str


@dataclass(frozen=True, slots=True)
class Unload:
    """Have a Pod's engine let go of it."""

    target: Target


@dataclass(frozen=True, slots=True)
class Tell:
    """An Event."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


Step: TypeAlias = (
    AddFinalizer
    | RemoveFinalizer
    | Annotate
    | Publish
    | CreateService
    | WriteSlice
    | MakeRoute
    | RemoveRoute
    | Load
    | Unload
    | Tell
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is safe to do now, in this order where one thing is written before another."""

    steps: Sequence[Step] = ()
    look_after_s: float | None = None
    """When time alone makes a difference; None: something will wake the next pass."""

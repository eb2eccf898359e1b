"""What a plan is made of, and what became of it. Values only: ``decide`` makes them, the frame carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from aibrix_operator.cluster.errors import ClusterError
from aibrix_operator.cluster.resource import Object, Resource


@dataclass(frozen=True, slots=True)
class Moment:
    """When a pass looks."""

    wall: datetime
    """For times that are published."""
    monotonic_s: float
    """For everything that is waited for."""


@dataclass(frozen=True, slots=True)
class Ref:
    """One object, and no namesake of it. ``namespace`` is "" for a cluster-scoped one."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Ref:
        """The object as the API server gave it."""
        metadata = obj["metadata"]
        return cls(metadata.get("namespace", ""), metadata["name"], metadata["uid"])


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object. Give it a name that follows from what it is for: a create whose answer is lost is then found
    again, and a second one is refused."""

    resource: Resource
    body: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object in the background."""

    resource: Resource
    ref: Ref


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge ``patch`` into an object, whatever else changed meanwhile, or only in the version that was looked at."""

    resource: Resource
    ref: Ref
    patch: Mapping[str, Any]
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Replace:
    """Put ``body`` in the place of the version that its metadata names."""

    resource: Resource
    body: Object


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Put the finalizer on the object that the pass is about, or take it off."""

    finalizer: str
    present: bool


@dataclass(frozen=True, slots=True)
class SetStatus:
    """The whole status of the object that the pass is about. Written last, and only where it differs."""

    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """Anything else, which ``Kind.perform`` carries out. It runs beside passes, one at a time in its lane."""

    lane: str
    """Within the object, such as a Pod's UID. A lane with a call under way takes no other: the plan is made anew."""
    what: Any


Step: TypeAlias = Create | Delete | Patch | Replace | SetFinalizer | SetStatus | Call


@dataclass(frozen=True, slots=True)
class Note:
    """An Event on the object that the pass is about, raised once all of its plan is done."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is safe to do now. Steps on other objects go side by side, those on the object itself after them."""

    steps: tuple[Step, ...] = ()
    notes: tuple[Note, ...] = ()
    look_after_s: float | None = None
    """Look again then, whatever happens; None: when something changes."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A step that the API server refused, or a call that ended. The next pass is told of it once.

    What worked is not told: the next pass sees it. Nor is a conflict, a lost answer or a server that is away: the
    frame looks again by itself.
    """

    step: Step
    value: Any = None
    """Of a call: what ``perform`` returned."""
    error: Exception | None = None
    found: Object | None = field(default=None, compare=False)
    """The object that has the name of one that was to be created."""

    @property
    def refusal(self) -> ClusterError | None:
        """Why the API server refused the step; None for calls that ended otherwise."""
        return self.error if isinstance(self.error, ClusterError) else None

"""What a pass comes to before the status is added: steps that are safe now, all side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aibrix_operator.api.orchestration import Reason
from aibrix_operator.controller.steps import Delete, Note, Patch, Ref, Step
from aibrix_operator.stormservice.resources import Resource
from aibrix_operator.stormservice.seen import Body, Seen


@dataclass(frozen=True, slots=True)
class Outline:
    """Steps on other objects and finalizers, Events, and when to look again."""

    steps: tuple[Step, ...] = ()
    notes: tuple[Note, ...] = ()
    look_again_s: float | None = None
    """Time after which something is due that nobody wakes us for."""
    problem: str = ""
    """Why nothing more can be done; it goes into the object's condition."""


def tell(reason: Reason, message: str) -> Note:
    """A normal Event."""
    return Note("Normal", reason.value, message)


def warn(reason: Reason, message: str) -> Note:
    """A warning Event."""
    return Note("Warning", reason.value, message)


def sooner(a: float | None, b: float | None) -> float | None:
    """The earlier of two times, None being never."""
    return b if a is None else a if b is None else min(a, b)


def sooner_by(outline: Outline, again_s: float | None) -> Outline:
    """``outline`` with another look in ``again_s``, unless there is an earlier one."""
    return replace(outline, look_again_s=sooner(outline.look_again_s, again_s))


def delete(resource: Resource, seen: Seen) -> Delete:
    """Delete that very object."""
    return Delete(resource, Ref.of(seen.body))


def patch(resource: Resource, seen: Seen, change: Body) -> Patch:
    """Merge ``change`` into that very object."""
    return Patch(resource, Ref.of(seen.body), change)

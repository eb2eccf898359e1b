"""What a kind with a pass per object brings to the frame: what it reads, how it looks, what it decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from aibrix_operator.cluster.resource import Key, Object, Resource, key_of
from aibrix_operator.cluster.watch import Change
from aibrix_operator.controller.cache import Cache, Selection, controller_of
from aibrix_operator.controller.steps import Call, Finished, Moment, Plan

S = TypeVar("S")
M = TypeVar("M")

Wakes: TypeAlias = Callable[[Change, Object | None, Object | None], Iterable[Key]]
"""(change, old, new) → the objects of our kind to look at again. ``old`` is None for ADDED, ``new`` for DELETED."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Another kind that ours reads: children, or what they depend on."""

    selection: Selection
    wakes: Wakes
    is_child: bool = False
    """We create such objects: they are listed anew as a term begins, and when the answer to a write was lost."""


def children(resource: Resource, owner_kind: str, **selection: Any) -> Reads:
    """Objects whose controlling owner is one of ``owner_kind``. ``selection``: fields of ``Selection``."""
    return Reads(Selection(resource, **selection), owner_key(owner_kind), is_child=True)


def owner_key(owner_kind: str) -> Wakes:
    """Wakes the controlling owner."""

    def wakes(change: Change, old: Object | None, new: Object | None) -> Iterable[Key]:
        found = set()
        for obj in (old, new):
            reference = None if obj is None else controller_of(obj)
            if obj is not None and reference is not None and reference["kind"] == owner_kind:
                found.add((key_of(obj)[0], str(reference["name"])))
        return found

    return wakes


@dataclass(frozen=True, slots=True)
class View:
    """What ``observe`` may look at. Objects are shared, and nobody changes them."""

    own: Object
    """The object that the pass is about, with our own writes."""
    now: Moment
    finished: tuple[Finished, ...] = ()
    """What was refused or ended since the last pass."""
    calls: frozenset[str] = frozenset()
    """Lanes that have a call under way."""
    _caches: dict[Resource, Cache] = field(default_factory=dict)

    def cache(self, resource: Resource) -> Cache:
        """The cache of a kind that is read."""
        return self._caches[resource]

    def children(self, resource: Resource) -> tuple[Object, ...]:
        """The objects of that kind that ours controls, by name; those on their way out have a deletionTimestamp."""
        return self._caches[resource].owned_by(self.own["metadata"]["uid"])


class Kind(Protocol[S, M]):
    """One kind. ``decide`` is pure; ``observe`` waits for nothing."""

    @property
    def name(self) -> str:
        """Lower case, for logs and metrics, such as ``modelwarmup``."""
        ...

    @property
    def kind(self) -> str:
        """As objects spell it, such as ``ModelWarmup``."""
        ...

    @property
    def resource(self) -> Resource:
        """Our own kind."""
        ...

    @property
    def reads(self) -> tuple[Reads, ...]:
        """All other kinds that are looked at."""
        ...

    @property
    def fresh(self) -> M:
        """What is remembered of an object at first, and after a restart."""
        ...

    def observe(self, view: View) -> S | None:
        """One frozen snapshot; None: there is nothing to do about this object, and nothing to remember."""
        ...

    def decide(self, snapshot: S, memory: M, now: Moment) -> tuple[Plan, M]:
        """What to do next. No I/O, no clock, no randomness."""
        ...

    async def perform(self, call: Call) -> Any:
        """Carry out a call. What it returns or raises is handed to the next pass."""
        ...

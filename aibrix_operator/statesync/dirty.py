"""Which entities changed here and are not in Redis yet, in generations, so that none is lost and none stays for ever.

``DirtySet`` is the bookkeeping alone, for ids of any kind; ``Tracked`` is the base class of a state with ids of text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from aibrix_operator.statesync.syncable import Changes, Delta

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Generation(Generic[K]):
    """What was dirty at one moment. Its push ends in ``DirtySet.settle``."""

    number: int
    updated: frozenset[K]
    deleted: frozenset[K]


class DirtySet(Generic[K]):
    """Two questions have each an own answer: what is not in Redis yet, and what peers have not been told yet.

    ``mark`` is made for hot paths: two set updates for a whole list of ids.
    """

    def __init__(self) -> None:
        self._updated: set[K] = set()
        self._deleted: set[K] = set()
        self._draining: dict[int, Generation[K]] = {}
        self._drained = 0
        self._wake: Callable[[], None] | None = None
        self._untold: set[K] = set()

    def __len__(self) -> int:
        """How many entities are not in Redis yet, those included whose push is under way."""
        under_way = sum(len(g.updated) + len(g.deleted) for g in self._draining.values())
        return len(self._updated) + len(self._deleted) + under_way

    def mark(self, entities: Collection[K]) -> None:
        """These were added or changed here."""
        self._updated.update(entities)
        if self._deleted:
            self._deleted.difference_update(entities)
        self._tell(entities)

    def mark_deleted(self, entities: Collection[K]) -> None:
        """These were deleted on purpose (an eviction is no deletion: its key expires)."""
        self._deleted.update(entities)
        self._updated.difference_update(entities)
        self._tell(entities)

    def drain(self) -> Generation[K]:
        """All that is dirty, which is then clean; ``settle`` brings back what did not arrive."""
        self._drained += 1
        generation = Generation(self._drained, frozenset(self._updated), frozenset(self._deleted))
        self._updated, self._deleted = set(), set()
        self._draining[generation.number] = generation
        return generation

    def settle(self, number: int, failed: Collection[K] = ()) -> None:
        """The push of a generation ended. What failed is dirty again, unless something newer was marked meanwhile."""
        generation = self._draining.pop(number)
        for entity in failed:
            if entity in generation.updated and entity not in self._deleted:
                self._updated.add(entity)
            elif entity in generation.deleted and entity not in self._updated:
                self._deleted.add(entity)

    def announce_to(self, wake: Callable[[], None] | None) -> None:
        """Call ``wake`` when there is something to tell and there was nothing before. None: keep nothing to tell."""
        self._wake = wake
        self._untold.clear()

    def take_untold(self, most: int) -> tuple[set[K], set[K]]:
        """Up to ``most`` entities that were not told yet: changed ones and deleted ones."""
        told = set(islice(self._untold, most))
        self._untold -= told
        gone = {entity for entity in told if self.is_deleted(entity)}
        return told - gone, gone

    def is_deleted(self, entity: K) -> bool:
        """Whether the last that was marked of it is a deletion that did not arrive yet."""
        if entity in self._updated:
            return False
        if entity in self._deleted:
            return True
        last = next((g for g in reversed(self._draining.values()) if entity in g.updated or entity in g.deleted), None)
        return last is not None and entity in last.deleted

    def _tell(self, entities: Collection[K]) -> None:
        if self._wake is None or not entities:
            return
        waiting = bool(self._untold)
        self._untold.update(entities)
        if not waiting:
            self._wake()


class Tracked(ABC):
    """Base of a state that is pushed by changes and announces them: its owner marks, the layer drains.

    A subclass gives ``namespace``, ``snapshot``, ``apply_remote`` and ``encode``; it calls ``changed`` and ``deleted``.
    One with ids of another kind keeps a ``DirtySet`` and turns ids into text in the same six methods.
    """

    def __init__(self) -> None:
        self._dirty: DirtySet[str] = DirtySet()

    @abstractmethod
    def encode(self, entities: Iterable[str]) -> dict[str, bytes]:
        """See ``DeltaSyncable``."""

    @property
    def dirty_count(self) -> int:
        """How many changes are not in Redis yet."""
        return len(self._dirty)

    def changed(self, *entities: str) -> None:
        """These were added or changed here."""
        self._dirty.mark(entities)

    def deleted(self, *entities: str) -> None:
        """These were deleted here on purpose."""
        self._dirty.mark_deleted(entities)

    def get_delta(self) -> Delta:
        """See ``DeltaSyncable``."""
        generation = self._dirty.drain()
        return Delta(generation.number, Changes(generation.updated, generation.deleted))

    def clear_dirty(self, generation: int, failed: Collection[str] = ()) -> None:
        """See ``DeltaSyncable``."""
        self._dirty.settle(generation, failed)

    def is_deleted_here(self, entity: str) -> bool:
        """See ``DeltaSyncable``."""
        return self._dirty.is_deleted(entity)

    def announce_to(self, wake: Callable[[], None] | None) -> None:
        """See ``Announcing``."""
        self._dirty.announce_to(wake)

    def take_news(self, most: int) -> Changes | None:
        """See ``Announcing``."""
        updated, deleted = self._dirty.take_untold(most)
        return Changes(updated, deleted) if updated or deleted else None

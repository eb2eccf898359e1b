"""What was deleted lately, so that neither a late push nor an old value of a peer brings it back. Pure.

The memory of a deletion ends with the TTL of its tombstone in Redis, no later: otherwise replicas that write each
other's tombstones anew would keep an id deleted for ever.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deletion:
    """One deleted entity: its tombstone, and when that ends in Redis."""

    tombstone: bytes
    ends_s: float


class Deletions:
    """Deleted entities of one namespace, by id."""

    def __init__(self) -> None:
        self._by_entity: dict[str, Deletion] = {}

    def __len__(self) -> int:
        return len(self._by_entity)

    def remember(self, entity: str, tombstone: bytes, ends_s: float) -> None:
        """A tombstone that is newer than what was known, or was written just now."""
        self._by_entity[entity] = Deletion(tombstone, ends_s)

    def ends_sooner(self, entity: str, tombstone: bytes, ends_s: float) -> None:
        """Redis told the end of a tombstone that was first seen there."""
        known = self._by_entity.get(entity)
        if known is not None and known.tombstone == tombstone and ends_s < known.ends_s:
            self._by_entity[entity] = Deletion(tombstone, ends_s)

    def of(self, entity: str, now_s: float) -> Deletion | None:
        """The deletion that still holds, if there is one."""
        known = self._by_entity.get(entity)
        return known if known is not None and known.ends_s > now_s else None

    def forget(self, entity: str) -> None:
        """A strictly newer value took its place."""
        self._by_entity.pop(entity, None)

    def drop_ended(self, now_s: float) -> None:
        """Bound the memory: called once a cycle."""
        ended = [entity for entity, known in self._by_entity.items() if known.ends_s <= now_s]
        for entity in ended:
            del self._by_entity[entity]

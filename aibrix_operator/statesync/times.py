"""A state that is shared as it is: when each thing was last used. The newest time wins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import orjson

from aibrix_operator.statesync.dirty import Tracked


class NewestTimes(Tracked):
    """Entity → unix nanoseconds of its last use, on any replica.

    A value is a JSON number, a tombstone ``{"deleted_at": <unix nanoseconds>}``. What was not used for ``life_s`` is
    forgotten, and does not come back from a peer that still has it.
    """

    def __init__(self, namespace: str, life_s: float, now_ns: Callable[[], int]) -> None:
        """``now_ns``: unix nanoseconds. Clocks of replicas should agree to well within ``life_s``."""
        super().__init__()
        self._namespace = namespace
        self._life_s = life_s
        self._now_ns = now_ns
        self._used_ns: dict[str, int] = {}
        self._deleted_ns: dict[str, int] = {}

    @property
    def namespace(self) -> str:
        return self._namespace

    @property
    def life_s(self) -> float:
        """See ``Lasting``."""
        return self._life_s

    def use(self, entity: str) -> None:
        """It is used now."""
        # Strictly newer than a deletion at the same reading of the clock.
        after_ns = self._deleted_ns.pop(entity, -1) + 1
        self._used_ns[entity] = max(self._now_ns(), self._used_ns.get(entity, 0), after_ns)
        self.changed(entity)

    def delete(self, entity: str) -> None:
        """Forget it on all replicas, until it is used again."""
        now_ns, used_ns = self._now_ns(), self._used_ns.pop(entity, 0)
        self._deleted_ns[entity] = max(now_ns, used_ns)
        self.deleted(entity)

    def last_used_ns(self, entity: str) -> int | None:
        """None when it was never used, or not for ``life_s``."""
        used_ns = self._used_ns.get(entity)
        return used_ns if used_ns is not None and self._is_live(used_ns) else None

    def drop_dead(self) -> None:
        """Free the memory of what was not used, or was deleted, for ``life_s``."""
        self._used_ns = {entity: ns for entity, ns in self._used_ns.items() if self._is_live(ns)}
        self._deleted_ns = {entity: ns for entity, ns in self._deleted_ns.items() if self._is_live(ns)}

    def _is_live(self, used_ns: int) -> bool:
        return self._now_ns() - used_ns < self._life_s * 1e9

    def snapshot(self) -> dict[str, bytes]:
        """See ``Syncable``."""
        return self.encode(self._used_ns)

    def encode(self, entities: Iterable[str]) -> dict[str, bytes]:
        """See ``DeltaSyncable``."""
        held = ((entity, self._used_ns.get(entity)) for entity in entities)
        return {entity: b"%d" % ns for entity, ns in held if ns is not None and self._is_live(ns)}

    def live_ids(self) -> Collection[str]:
        """See ``Lasting``."""
        return [entity for entity, ns in self._used_ns.items() if self._is_live(ns)]

    def apply_remote(self, entity: str, data: bytes) -> bool:
        """See ``Syncable``. The remote time is taken as it is, so that peers do not keep each other's entries alive."""
        remote_ns, here_ns = _time_ns(data), self._used_ns.get(entity)
        if here_ns is None or remote_ns > here_ns:
            self._used_ns[entity] = remote_ns
            return False
        return here_ns > remote_ns

    def is_stale(self, entity: str, data: bytes) -> bool:
        """See ``StalePolicy``."""
        return not self._is_live(_time_ns(data))

    def make_tombstone(self, entity: str) -> bytes:
        """See ``Tombstones``."""
        return orjson.dumps({"deleted_at": self._deleted_ns.get(entity, self._now_ns())})

    def is_tombstone(self, data: bytes) -> bool:
        """See ``Tombstones``."""
        return data.startswith(b"{")

    def supersedes(self, data: bytes, tombstone: bytes) -> bool:
        """See ``Tombstones``."""
        newer_ns = _deletion_ns(data) if self.is_tombstone(data) else _time_ns(data)
        return newer_ns > _deletion_ns(tombstone)

    def delete_local(self, entity: str, tombstone: bytes) -> bool:
        """See ``Tombstones``."""
        deleted_ns = _deletion_ns(tombstone)
        if self._used_ns.get(entity, deleted_ns) > deleted_ns:
            return False
        self._used_ns.pop(entity, None)
        return True


def _time_ns(data: bytes) -> int:
    value = orjson.loads(data)
    if type(value) is not int:
        raise ValueError(f"{data[:60]!r} is no time: a JSON integer of unix nanoseconds is")
    return value


def _deletion_ns(data: bytes) -> int:
    value = orjson.loads(data)
    if not isinstance(value, dict) or type(value.get("deleted_at")) is not int:
        raise ValueError(f"{data[:60]!r} is no tombstone")
    return int(value["deleted_at"])

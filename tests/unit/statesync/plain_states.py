"""States of tests: plain ones without changes, with whatever part of the contract a test wants."""

from __future__ import annotations

from collections.abc import Iterable

from aibrix_operator.statesync.dirty import Tracked


class Plain:
    """Pushed whole; the greatest bytes win."""

    def __init__(self, namespace: str = "plain", **entities: bytes) -> None:
        self.namespace = namespace
        self.held: dict[str, bytes] = dict(entities)
        self.log: list[tuple[str, str]] = []
        self.unreadable = b"unreadable"

    def snapshot(self) -> dict[str, bytes]:
        self.log.append(("snapshot", self.namespace))
        return dict(self.held)

    def apply_remote(self, entity: str, data: bytes) -> bool:
        if data.startswith(self.unreadable):
            raise ValueError(f"{entity} is not understood")
        self.log.append(("apply", entity))
        self.held[entity] = max(self.held.get(entity, b""), data)
        return self.held[entity] > data


class Hooked(Plain):
    """With hooks, which fail when told to."""

    failing: frozenset[str] = frozenset()

    def on_sync_start(self) -> None:
        self._hook("start")

    def on_sync_end(self) -> None:
        self._hook("end")

    def _hook(self, name: str) -> None:
        self.log.append((name, self.namespace))
        if name in self.failing:
            raise RuntimeError(f"the {name} hook fails")


class Ageing(Plain):
    """Values that begin with ``old`` are stale."""

    def is_stale(self, entity: str, data: bytes) -> bool:
        return data.startswith(b"old")


class Deletable(Plain):
    """A tombstone is a constant, so no value is ever newer."""

    def make_tombstone(self, entity: str) -> bytes:
        return b"+"

    def is_tombstone(self, data: bytes) -> bool:
        return data == b"+"

    def supersedes(self, data: bytes, tombstone: bytes) -> bool:
        return False

    def delete_local(self, entity: str, tombstone: bytes) -> bool:
        self.held.pop(entity, None)
        return True


class Changing(Tracked):
    """Pushed by changes, without tombstones; evicts and deletes."""

    def __init__(self, namespace: str = "changing") -> None:
        super().__init__()
        self.namespace = namespace
        self.held: dict[str, bytes] = {}

    def put(self, *entities: str, data: bytes = b"v") -> None:
        self.held.update(dict.fromkeys(entities, data))
        self.changed(*entities)

    def evict(self, *entities: str) -> None:
        for entity in entities:
            self.held.pop(entity, None)

    def delete(self, *entities: str) -> None:
        self.evict(*entities)
        self.deleted(*entities)

    def snapshot(self) -> dict[str, bytes]:
        return dict(self.held)

    def encode(self, entities: Iterable[str]) -> dict[str, bytes]:
        return {entity: self.held[entity] for entity in entities if entity in self.held}

    def apply_remote(self, entity: str, data: bytes) -> bool:
        self.held[entity] = max(self.held.get(entity, b""), data)
        return self.held[entity] > data

"""The garbage collector: what has lost its last owner goes, in the background."""

from __future__ import annotations

import asyncio

from aibrix_operator.cluster.resource import Object
from aibrix_operator.sim.store import Store


class GarbageCollector:
    """Tell it of every object that is gone."""

    def __init__(self, store: Store) -> None:
        self.delay_s = 0.1
        """After the owner is gone."""
        self._store = store

    def gone(self, obj: Object) -> None:
        """An owner, perhaps, is gone."""
        asyncio.get_running_loop().call_later(self.delay_s, self._collect, obj["metadata"]["uid"])

    def _collect(self, uid: str) -> None:
        living = {obj["metadata"]["uid"] for obj in self._store.objects.values()}
        for (plural, *key), obj in list(self._store.objects.items()):
            owners = {reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()}
            if uid in owners and not owners & living:
                self._store.delete_at((plural, key[0], key[1]))

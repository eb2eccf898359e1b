"""The garbage collector: what has lost its last owner, or never had one that lives, goes in the background."""

from __future__ import annotations

import asyncio

from aibrix_operator.cluster.resource import Object
from aibrix_operator.sim.store import Store


class GarbageCollector:
    """Tell it of every change of an object."""

    def __init__(self, store: Store) -> None:
        self.delay_s = 0.1
        """After the owner is gone."""
        self._store = store

    def changed(self, old: Object | None, new: Object | None) -> None:
        """An owner is gone, or an object has come whose owner may be."""
        loop = asyncio.get_running_loop()
        if new is None and old is not None:
            loop.call_later(self.delay_s, self._collect, old["metadata"]["uid"])
        elif old is None and new is not None:
            for reference in new["metadata"].get("ownerReferences") or ():
                loop.call_later(self.delay_s, self._collect, reference["uid"])

    def _collect(self, uid: str) -> None:
        """What has this owner, and no other that lives."""
        living = {obj["metadata"]["uid"] for obj in self._store.objects.values()}
        if uid in living:
            return
        for (plural, *key), obj in list(self._store.objects.items()):
            owners = {reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()}
            if uid in owners and not owners & living:
                self._store.delete_at((plural, key[0], key[1]))

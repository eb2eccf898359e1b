"""The objects of one kind as a process knows them: what watches told, our own acknowledged writes over it, and an
index by owner. One cache serves all controllers of a process that read the kind."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from aibrix_operator.cluster.overlay import Overlay
from aibrix_operator.cluster.resource import Key, Object, Resource, key_of
from aibrix_operator.cluster.watch import Change, OnEvent, Slim, without_bookkeeping

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects are kept, and what of them."""

    resource: Resource
    label_selector: str = ""
    is_namespaced: bool = True
    """False for Nodes and Namespaces: an operator of one namespace watches all of them."""
    is_optional: bool = False
    """The cluster may lack the kind; nothing waits for it."""
    slim: Slim = without_bookkeeping
    """Of an object as it comes, what is kept. One that leaves out more makes a new object of it."""


class Cache:
    """A ``Feed`` of one kind. It holds what it is told, by whomever: kopf, a watch, a list, or a simulation."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self._objects: dict[Key, Object] = {}
        self.overlay = Overlay(self._objects, selection.slim)
        self._owned: dict[str, dict[Key, None]] = {}
        """UID of the controlling owner → keys of its objects, oldest word first."""
        self._listeners: list[OnEvent] = []

    def listen(self, listener: OnEvent) -> None:
        """Have ``listener`` told of every change, after the cache has it."""
        self._listeners.append(listener)

    # --- reading: the newest that is known of each object; values are shared, and nobody changes them

    def get(self, key: Key) -> Object | None:
        """One object; None when there is none."""
        return self.overlay.get(key)

    def values(self) -> Iterator[Object]:
        """All objects."""
        return self.overlay.values()

    def owned_by(self, uid: str) -> tuple[Object, ...]:
        """The objects whose controlling owner has this UID, by namespace and name."""
        found = (self.overlay.get(key) for key in sorted(self._owned.get(uid, ())))
        return tuple(obj for obj in found if obj is not None and owner_uid(obj) == uid)

    # --- being told

    def changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        """As ``Feed.changed``. An object that took another's name ends that one first; older news change nothing."""
        obj = new if new is not None else old
        if obj is None:
            return
        key, uid = key_of(obj), obj["metadata"]["uid"]
        known = self._objects.get(key)
        if change is Change.DELETED:
            if known is not None and known["metadata"]["uid"] == uid:
                self._forget(key, known)
            else:
                self._tell(Change.DELETED, obj, None)  # of one that only we knew, or that a namesake has followed
            return
        if known is not None and known["metadata"]["uid"] != uid:
            if _is_older(obj, known):
                return
            self._forget(key, known)
            known = None
        if known is not None and (_is_older(obj, known) or _version(obj) == _version(known)):
            return
        self._objects[key] = obj
        self._index(key, obj)
        self._tell(Change.ADDED if known is None else Change.MODIFIED, known, obj)

    def listed(self, objects: Collection[Object], version: int, namespace: str | None = None) -> None:
        """All objects (of ``namespace``, or everywhere) at ``version``: what it lacks and is no younger is gone."""
        uids = {obj["metadata"]["uid"] for obj in objects}
        for obj in objects:
            self.changed(Change.MODIFIED, None, obj)
        for key, known in list(self._objects.items()):
            is_there = namespace not in (None, key[0]) or known["metadata"]["uid"] in uids
            if not is_there and _number(known) <= version:
                self._forget(key, known)
        for obj in self.overlay.listed(version, namespace, uids):
            self._tell(Change.DELETED, obj, None)

    def wrote(self, obj: Object) -> None:
        """The API server's answer to a write of ours, which a watch will tell of later."""
        obj = self.selection.slim(obj)
        self.overlay.wrote(obj)
        if self.overlay.get(key_of(obj)) is not None:
            self._index(key_of(obj), obj)

    def asked_to_delete(self, key: Key, uid: str, answer: Object) -> None:
        """The API server took our deletion of that object; ``answer`` is what it said."""
        if answer.get("metadata", {}).get("uid") == uid:
            self.wrote(answer)
        else:
            self.gone(key, uid)

    def gone(self, key: Key, uid: str) -> None:
        """The API server says that there is no such object any more, whatever the watches have missed."""
        self.overlay.ended(key, uid)
        known = self._objects.get(key)
        if known is not None and known["metadata"]["uid"] == uid:
            self._forget(key, known)

    # --- inside

    def _forget(self, key: Key, known: Object) -> None:
        del self._objects[key]
        self._tell(Change.DELETED, known, None)

    def _index(self, key: Key, obj: Object) -> None:
        owner = owner_uid(obj)
        if owner:
            self._owned.setdefault(owner, {})[key] = None

    def _tell(self, change: Change, old: Object | None, new: Object | None) -> None:
        self.overlay.observed(change, old, new)
        if old is not None:
            self._unindex(key_of(old), owner_uid(old))
        for listener in self._listeners:
            try:
                listener(change, old, new)
            except Exception:
                # A bug in one listener must not stop the cache that everybody reads.
                log.exception("cache of %s: a listener failed on %s", self.selection.resource.plural, change)

    def _unindex(self, key: Key, owner: str) -> None:
        """Unless it is there, and still this owner's."""
        owned, current = self._owned.get(owner), self.overlay.get(key)
        if owned is None or (current is not None and owner_uid(current) == owner):
            return
        owned.pop(key, None)
        if not owned:
            del self._owned[owner]


class Caches:
    """The caches of one process, each made when the first controller asks for it."""

    def __init__(self) -> None:
        self._caches: dict[Selection, Cache] = {}
        self._own: dict[Resource, Cache] = {}

    def own(self, resource: Resource) -> Cache:
        """Of one of our own kinds, which kopf feeds."""
        return self._own.setdefault(resource, Cache(Selection(resource)))

    def of(self, selection: Selection) -> Cache:
        """Of any kind; of an own one the same for everybody, whatever is selected."""
        if selection.resource in self._own:
            return self._own[selection.resource]
        return self._caches.setdefault(selection, Cache(selection))

    @property
    def watched(self) -> list[Cache]:
        """All that need a watch."""
        return [cache for cache in self._caches.values() if cache.selection.resource not in self._own]

    @property
    def all(self) -> list[Cache]:
        """All caches, those of own kinds first."""
        return [*self._own.values(), *self.watched]


def controller_of(obj: Object) -> dict[str, Any] | None:
    """The object's controlling owner reference; None without one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: dict[str, Any] = reference
            return found
    return None


def owner_uid(obj: Object) -> str:
    """UID of the controlling owner; empty without one."""
    reference = controller_of(obj)
    return "" if reference is None else str(reference["uid"])


def _version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def _number(obj: Object) -> int:
    """A version that is no number is as good as the oldest: a list is believed then."""
    version = _version(obj)
    return int(version) if version.isdecimal() else 0


def _is_older(one: Object, other: Object) -> bool:
    first, second = _version(one), _version(other)
    return first.isdecimal() and second.isdecimal() and int(first) < int(second)

"""A watch's cache with our own acknowledged writes laid over it.

A watch lags behind the API server. Who has just promised memory on a card must not decide the next promise on a cache
that has not seen it. So every object that the API server hands back for a write is kept here until the watch shows
that version or a later one.

Versions are compared as integers, which Kubernetes promises since 1.35 (KEP-5504) and has done in practice for ever.
Where a server's are no integers, a write stands until the watch shows any other version than it did when we wrote:
that may be one step too early when somebody else wrote just before us.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from aibrix_operator.cluster.resource import Key, Object, key_of
from aibrix_operator.cluster.watch import Change, Slim, without_bookkeeping

# An answer can overtake its object's deletion only by the time that one request takes.
_REMEMBERED_DELETIONS = 4096


@dataclass(frozen=True, slots=True)
class _Written:
    obj: Object
    seen_version: str | None
    """What the watch showed when the write was acknowledged; None when it showed no such object."""


class Overlay:
    """Reads ``watched`` (a watch's live cache) with our writes over it. Used within the watch's event loop only.

    ``observed`` must be called for every event of the watch, before anybody reacts to it: a deletion ends our write.
    Who creates objects calls ``listed`` for every list too: one that somebody deleted before the watch came to it
    would stay here if a list instead of events told of it.
    Everything here may be lost: a restarted operator reads the API server first.
    """

    def __init__(self, watched: Mapping[Key, Object], slim: Slim = without_bookkeeping) -> None:
        self._watched = watched
        self._slim = slim
        self._written: dict[Key, _Written] = {}
        self._deleted: collections.OrderedDict[str, str] = collections.OrderedDict()  # uid -> its last known version

    def wrote(self, obj: Object) -> None:
        """``obj`` is the API server's answer to our write. An older one than we know changes nothing.

        Taking the last finalizer off a deleted object ends it, so such an answer counts as its deletion.
        """
        obj = self._slim(obj)
        key = key_of(obj)
        metadata = obj["metadata"]
        if metadata["uid"] in self._deleted:
            return  # the watch told of the deletion before the answer was read
        if _has_ended(obj):
            self._end(key, metadata["uid"], _version(obj))
            return
        seen = self._watched.get(key)
        written = self._written.get(key)
        if written is not None and _is_at_least(_version(written.obj), _version(obj)):
            return
        self._written[key] = _Written(obj, None if seen is None else _version(seen))
        self.get(key)  # forgets it at once where the watch was faster

    def observed(self, change: Change, old: Object | None, new: Object | None) -> None:
        """An ``OnEvent`` of the watch: a deletion ends our write of that uid, a newer version replaces it."""
        if change is Change.DELETED and old is not None:
            self._end(key_of(old), old["metadata"]["uid"], _version(old))
        elif new is not None:
            ended_at = self._deleted.get(new["metadata"]["uid"])
            # It left the watch's label selector and is back. An older version is a list that was read before the end.
            if ended_at is not None and not _is_at_least(ended_at, _version(new)):
                del self._deleted[new["metadata"]["uid"]]
            self.get(key_of(new))

    def listed(self, version: int, namespace: str | None, uids: Collection[str]) -> list[Object]:
        """A list at ``version``, of ``namespace`` or of all (None), held these UIDs: what we wrote before it and is
        not in it is gone. Returns what that ended."""
        ended = []
        for key, written in list(self._written.items()):
            uid, ours = written.obj["metadata"]["uid"], _version(written.obj)
            is_older = not ours.isdecimal() or int(ours) <= version
            if namespace in (None, key[0]) and uid not in uids and is_older:
                self._end(key, uid, ours)
                ended.append(written.obj)
        return ended

    def ended(self, key: Key, uid: str) -> None:
        """The API server says that this object is gone, before the watch does."""
        known = self.get(key)
        if known is not None and known["metadata"]["uid"] == uid:
            self._end(key, uid, _version(known))

    def _end(self, key: Key, uid: str, version: str) -> None:
        """No answer to a write brings ``uid`` back, and the watch's copy of it is hidden until it goes too."""
        self._deleted[uid] = version
        self._deleted.move_to_end(uid)
        while len(self._deleted) > _REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)
        written = self._written.get(key)
        if written is not None and written.obj["metadata"]["uid"] == uid:
            del self._written[key]

    def has_written(self, obj: Object) -> bool:
        """Whether this is the version that the API server answered our last write of it with, still unseen."""
        written = self._written.get(key_of(obj))
        return written is not None and _version(written.obj) == _version(obj)

    def get(self, key: Key) -> Object | None:
        """The newest version that we know; None when there is none, or it is deleted."""
        seen = self._watched.get(key)
        if seen is not None and seen["metadata"]["uid"] in self._deleted:
            seen = None
        written = self._written.get(key)
        if written is None:
            return seen
        if seen is not None and _has_caught_up(seen, written):
            del self._written[key]
            return seen
        return written.obj

    def keys(self) -> list[Key]:
        """All keys that ``get`` may answer, the watch's first, each once."""
        return [*self._watched, *(key for key in self._written if key not in self._watched)]

    def values(self) -> Iterator[Object]:
        """All objects in their newest known version."""
        for key in self.keys():
            obj = self.get(key)
            if obj is not None:
                yield obj

    @property
    def pending(self) -> int:
        """Writes that the watch has not shown yet."""
        return len(self._written)


def _version(obj: Object) -> str:
    version: str = obj["metadata"]["resourceVersion"]
    return version


def _has_ended(obj: Object) -> bool:
    """Deleted, nothing holds it, and no grace period (a Pod's) runs."""
    metadata = obj["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def _has_caught_up(seen: Object, written: _Written) -> bool:
    seen_version, our_version = _version(seen), _version(written.obj)
    if seen_version.isdecimal() and our_version.isdecimal():
        return int(seen_version) >= int(our_version)
    return seen_version != written.seen_version


def _is_at_least(version: str, other: str) -> bool:
    """False also where the two cannot be compared: the later call is then the later write."""
    return version.isdecimal() and other.isdecimal() and int(version) >= int(other)

"""An object store in memory that answers as an API server does: versions, conflicts, finalizers, deletion, a watch.

It offers the calls of ``cluster.client.Cluster`` that controllers use, on the event loop's clock. Objects are never
changed in place: a change makes a new one, which shares what is equal. So all who read may keep what they were given.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import itertools
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import EVENTS, Key, Object, Resource, key_of
from aibrix_operator.cluster.watch import Change, OnEvent

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The wall clock when the loop's clock is at 0."""

NOTHING: Mapping[str, Any] = MappingProxyType({})

LATE_STATUS = "late status"
"""The verb of a status that was sent a while ago, on what was known then."""

Fault = Callable[[str, Resource, str, Mapping[str, Any]], Exception | None]
"""(verb, resource, name, body) → the error that the call ends in without being done, or None."""

Late = Callable[[str, Resource, str], float | None]
"""(verb, resource, name) → the call is carried out so many seconds after its caller gave up; None: it is not late."""

Changed = Callable[[str, Resource, Object | None, Object | None], None]
"""(verb of the controller's call, or empty; resource; old; new)."""


def wall() -> datetime:
    """The API server's wall clock."""
    return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())


def now_s() -> float:
    """The virtual clock."""
    return asyncio.get_running_loop().time()


def in_time(verb: str, resource: Resource, name: str) -> float | None:
    """No call is late."""
    return None


class Store:
    """All objects, their watchers, and what is to go wrong."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        """(plural, namespace, name) → object."""
        self.events: list[Object] = []
        """Every Event created, oldest first."""
        self.writes: list[tuple[str, str, str, Object]] = []
        """(verb, plural, name, body) of every accepted write, Events apart, oldest first."""
        self.fault: Fault = lambda verb, resource, name, body: None
        self.lost: Fault = lambda verb, resource, name, body: None
        """Like ``fault``, after the call was carried out: its answer is lost."""
        self.late: Late = in_time
        self.late_by_s = 0.0
        """How long ago the call that is being carried out was sent."""
        self.sent: Callable[[], None] = lambda: None
        """Told of every call of a controller that changes something, as it is sent."""
        self.refused: Callable[[Resource, Key], None] = lambda resource, key: None
        """Told of every patch of a controller that is answered with: there is no such object."""
        self.changed: Changed = lambda verb, resource, old, new: None
        """Told of every change as it happens."""
        self.delay: Callable[[], Awaitable[None]] | None = None
        """Awaited by every call of a controller before it is carried out."""
        self.watch_delay_s = 0.0
        """How much later watches hear of a change."""
        self._last_told_s = 0.0
        self._watchers: dict[str, list[tuple[OnEvent, contextvars.Context]]] = {}
        self._resources: dict[str, Resource] = {}
        """By plural: kinds that there were objects of."""
        self.version = 0
        """resourceVersion of the last change."""
        self.identities = itertools.count(1)
        """For whoever needs a name that nobody had before."""

    def watch(self, resource: Resource, on_event: OnEvent) -> Callable[[], None]:
        """Have ``on_event`` called, in the caller's context, for every later change; what is returned ends that."""
        watchers = self._watchers.setdefault(resource.plural, [])
        watcher = on_event, contextvars.copy_context()
        watchers.append(watcher)
        return lambda: watchers.remove(watcher)

    def of(self, resource: Resource) -> list[Object]:
        """All objects of a kind."""
        return [obj for (plural, _, _), obj in self.objects.items() if plural == resource.plural]

    def put(self, resource: Resource, obj: Mapping[str, Any]) -> Object:
        """Create an object, or replace one as its owner would: a new version, no questions."""
        stored = copy.deepcopy(dict(obj))
        metadata = stored["metadata"]
        key = (resource.plural, metadata.get("namespace", ""), metadata["name"])
        old = self.objects.get(key)
        metadata.setdefault("uid", old["metadata"]["uid"] if old else f"uid-{self._next_version()}")
        metadata.setdefault("creationTimestamp", rfc3339(wall()))
        return self._commit(resource, key, old, stored)

    def _next_version(self) -> int:
        self.version += 1
        return self.version

    def change(self, resource: Resource, key: Key, patch: Mapping[str, Any]) -> Object:
        """Merge ``patch`` into an object as another client would; ``metadata.generation`` counts spec changes."""
        full = (resource.plural, *key)
        old = self.objects[full]
        new = merged(old, patch)
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        return self._commit(resource, full, old, new)

    def delete(self, resource: Resource, key: Key) -> None:
        """Delete an object: at once, or once its finalizers are gone."""
        self.delete_at((resource.plural, *key))

    def delete_at(self, full: tuple[str, str, str]) -> None:
        """As ``delete``, by (plural, namespace, name)."""
        resource, old = self._resources[full[0]], self.objects[full]
        if old["metadata"].get("finalizers"):
            if "deletionTimestamp" not in old["metadata"]:
                self._commit(resource, full, old, merged(old, {"metadata": {"deletionTimestamp": rfc3339(wall())}}))
            return
        self._remove(resource, full, old)

    # --- the calls of cluster.client.Cluster

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object:
        assert resource == EVENTS, "controllers create nothing but Events"
        self.events.append(dict(body))
        return dict(body)

    async def patch(self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]) -> Object:
        assert resource == EVENTS, "controllers patch other objects through the calls below"
        return dict(patch)

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> Object:
        return await self._patch("status", resource, (namespace, name), {"status": dict(status)}, resource_version)

    async def add_finalizer(self, resource: Resource, obj: Mapping[str, Any], finalizer: str) -> Object:
        return await self._finalizers(resource, obj, [*obj["metadata"].get("finalizers", []), finalizer])

    async def remove_finalizer(self, resource: Resource, obj: Mapping[str, Any], finalizer: str) -> Object:
        kept = [f for f in obj["metadata"].get("finalizers", []) if f != finalizer]
        return await self._finalizers(resource, obj, kept)

    async def patch_annotations(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        annotations: Mapping[str, str | None],
        *,
        uid: str | None = None,
    ) -> Object:
        patch = {"metadata": {"annotations": dict(annotations)}}
        return await self._patch("annotate", resource, (namespace, name), patch, "", uid)

    async def _finalizers(self, resource: Resource, obj: Mapping[str, Any], finalizers: list[str]) -> Object:
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        patch = {"metadata": {"finalizers": finalizers}}
        return await self._patch("finalize", resource, key, patch, metadata["resourceVersion"])

    async def _patch(
        self, verb: str, resource: Resource, key: Key, patch: Object, resource_version: str, uid: str | None = None
    ) -> Object:
        def arrive(verb: str) -> Object:
            return self._arrive(verb, resource, key, patch, resource_version, uid)

        try:
            return await self.call(verb, resource, key[1], patch, arrive)
        except errors.NotFound:
            self.refused(resource, key)
            raise

    async def call(
        self, verb: str, resource: Resource, name: str, body: Mapping[str, Any], arrive: Callable[[str], Object]
    ) -> Object:
        """A controller's call that changes something, with all that can happen to it on its way.

        ``arrive``, told the verb, does it.
        """
        self.sent()
        await self.reach(verb, resource, name, body)
        after_s = self.late(verb, resource, name)
        if after_s is not None:
            asyncio.get_running_loop().call_later(after_s, self._arrive_late, verb, arrive, after_s)
            raise errors.Unavailable("no answer in time")
        stored = arrive(verb)
        lost = self.lost(verb, resource, name, body)
        if lost is not None:
            raise lost
        return stored

    async def reach(self, verb: str, resource: Resource, name: str, body: Mapping[str, Any] = NOTHING) -> None:
        """The way to the API server. Raises what the call ends in without being done."""
        if self.delay is not None:
            await self.delay()
        error = self.fault(verb, resource, name, body)
        if error is not None:
            raise error

    def _arrive_late(self, verb: str, arrive: Callable[[str], Object], after_s: float) -> None:
        # Routes have no resourceVersion to guard them: what is wrong with a late one, the next pass puts right.
        self.late_by_s = after_s
        with contextlib.suppress(errors.ClusterError):  # nobody hears it
            arrive(LATE_STATUS if verb == "status" else "" if verb == "annotate" else verb)
        self.late_by_s = 0.0

    def _arrive(
        self, verb: str, resource: Resource, key: Key, patch: Object, resource_version: str, uid: str | None
    ) -> Object:
        full, name = (resource.plural, *key), "/".join(key)
        old = self.objects.get(full)
        if old is None:
            raise errors.NotFound(f"PATCH {resource.plural} {name}: HTTP 404: not found", status=404)
        is_another = uid not in (None, old["metadata"]["uid"])
        if is_another or (resource_version and old["metadata"]["resourceVersion"] != resource_version):
            raise errors.Conflict(f"PATCH {resource.plural} {name}: HTTP 409: it has been modified", status=409)
        self.writes.append((verb, resource.plural, key[1], patch))
        new = merged(old, patch)
        stored = old if new == old else self._commit(resource, full, old, new, verb)
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            self._remove(resource, full, stored)
        return stored

    # --- the calls that an election needs

    def get(self, resource: Resource, key: Key) -> Object:
        """Read one object as it is now. Raises NotFound."""
        obj = self.objects.get((resource.plural, *key))
        if obj is None:
            raise errors.NotFound(f"GET {resource.plural} {'/'.join(key)}: HTTP 404: not found", status=404)
        return obj

    def add(self, resource: Resource, body: Mapping[str, Any]) -> Object:
        """Create an object. Raises AlreadyExists."""
        if (resource.plural, *key_of(body)) in self.objects:
            raise errors.AlreadyExists(f"POST {resource.plural}: HTTP 409: already exists", status=409)
        return self.put(resource, body)

    def replace(self, resource: Resource, body: Mapping[str, Any]) -> Object:
        """Replace an object in the version that was read. Raises NotFound and Conflict."""
        old = self.get(resource, key_of(body))
        if old["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise errors.Conflict(f"PUT {resource.plural}: HTTP 409: it has been modified", status=409)
        # What the API server alone decides stays, whether the body repeats it or not.
        kept = {key: old["metadata"][key] for key in ("uid", "creationTimestamp") if key in old["metadata"]}
        new = {**body, "metadata": {**body["metadata"], **kept}}
        if "status" in old:
            new["status"] = old["status"]  # a subresource of its own
        if new.get("spec") != old.get("spec") and "generation" in old["metadata"]:
            new["metadata"]["generation"] = old["metadata"]["generation"] + 1
        return self._commit(resource, (resource.plural, *key_of(body)), old, new)

    def _commit(
        self, resource: Resource, key: tuple[str, str, str], old: Object | None, new: Object, verb: str = ""
    ) -> Object:
        self._resources[resource.plural] = resource
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self._next_version())}}
        self.objects[key] = new
        self.changed(verb, resource, old, new)
        self._tell(resource, Change.ADDED if old is None else Change.MODIFIED, old, new)
        return new

    def _remove(self, resource: Resource, key: tuple[str, str, str], old: Object) -> None:
        del self.objects[key]
        self.changed("", resource, old, None)
        self._tell(resource, Change.DELETED, old, None)

    def told_s(self) -> float:
        """When watches tell of a change that is made now: never before an earlier one, since they keep the order."""
        return max(now_s() + self.watch_delay_s, self._last_told_s + 1e-9)

    def _tell(self, resource: Resource, change: Change, old: Object | None, new: Object | None) -> None:
        loop = asyncio.get_running_loop()
        self._last_told_s = self.told_s()
        for on_event, context in self._watchers.get(resource.plural, ()):
            loop.call_at(self._last_told_s, on_event, change, old, new, context=context)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386: a JSON merge patch."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result

"""One list-and-watch: a cache of one kind of object that follows the API server, and says what changed.

A list starts it, a watch goes on from there, and a new list heals whatever a watch cannot: an expired resourceVersion,
an error from the server, a line that is no event. What a list no longer holds is reported as deleted, so a deletion is
never missed. ``run`` ends only by cancellation.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TypeAlias

import orjson

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.backoff import Backoff
from aibrix_operator.cluster.client import PAGE_OBJECTS, Cluster
from aibrix_operator.cluster.resource import Key, Object, Resource, key_of

log = logging.getLogger(__name__)

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# As client-go: the server ends each watch at a random time, so that watches of many clients do not end together.
_WATCH_MIN_S = 300
_WATCH_MAX_S = 600
_BACKOFF = Backoff(initial_s=0.5, max_s=30, jitter=0.5)
# A watch that ends sooner and said nothing was cut by a proxy that is not well: back off as after an error.
_SHORTEST_WATCH_S = 1.0


class Change(enum.StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


# Called with (change, old, new); old is None for ADDED, new for DELETED. It runs in the watch's loop, between two
# objects, so it only notes and wakes. An object recreated under its name is a DELETED followed by an ADDED.
OnEvent: TypeAlias = Callable[[Change, Object | None, Object | None], None]
# Called with a complete list and the resourceVersion that it was read at, after all of its events.
OnList: TypeAlias = Callable[[Collection[Object], int], None]
Slim: TypeAlias = Callable[[Object], Object]
Keeps: TypeAlias = Callable[[Object], bool]


class _Malformed(Exception):
    """The server said something that is no object and no watch event."""


# What reading JSON of an unexpected shape raises (orjson's own error is a ValueError).
_NOT_AN_OBJECT = (KeyError, TypeError, ValueError, AttributeError)


def without_bookkeeping(obj: Object) -> Object:
    """``obj`` without managedFields and kubectl's copy of it, which no controller reads and which double its size."""
    metadata = obj["metadata"]
    metadata.pop("managedFields", None)
    annotations = metadata.get("annotations")
    if annotations:
        annotations.pop(LAST_APPLIED, None)
    return obj


def _everything(obj: Object) -> bool:
    """Keeps all objects."""
    return True


def _ignore_list(objects: Collection[Object], version: int) -> None:
    """For those whose objects others create."""


def _ignore(change: Change, old: Object | None, new: Object | None) -> None:
    """For those who only read the cache."""


class Watch:
    """A cache of ``resource`` in ``namespace`` (None: all), narrowed by ``label_selector``.

    ``slim`` turns an object as it comes into what is kept of it (it may change it in place) and must keep
    metadata.name, namespace, uid and resourceVersion. All state is rebuilt from the API server by the first list.

    ``keeps`` looks at an object as it comes: one that it does not want is as good as not there, for selections that no
    label selector can express. Every list but the first waits for ``relist_delay_s`` seconds, asked for each, so that
    many clients do not list together when the server comes back; what was known stays known meanwhile.
    """

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        on_event: OnEvent = _ignore,
        on_list: OnList = _ignore_list,
        slim: Slim = without_bookkeeping,
        keeps: Keeps = _everything,
        backoff: Backoff = _BACKOFF,
        page_objects: int = PAGE_OBJECTS,
        relist_delay_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.resource = resource
        self.slim = slim
        self.synced = asyncio.Event()
        """Set once by the first complete list; ``objects`` is empty or partial before it."""
        self.lists = 0
        """Complete lists so far; growing means that watches break."""
        self._cluster = cluster
        self._namespace = namespace
        self._label_selector = label_selector
        self._on_event = on_event
        self._on_list = on_list
        self._backoff = backoff
        self._page_objects = page_objects
        self._keeps = keeps
        self._relist_delay_s = relist_delay_s
        self._objects: dict[Key, Object] = {}
        self._resource_version = ""
        self._listed_at: float | None = None
        self._heard_at: float | None = None
        self._failures = 0
        """In a row; of those that end in a list: ``_restarts``. A server that was away for long and answers again is
        one that lists need not wait long for."""
        self._restarts = 0

    @property
    def objects(self) -> Mapping[Key, Object]:
        """A live view by (namespace, name). Its values are shared: nobody changes them."""
        return MappingProxyType(self._objects)

    def list_age_s(self) -> float | None:
        """Seconds since the last complete list; None before the first."""
        return _age_s(self._listed_at)

    def silence_s(self) -> float | None:
        """Seconds since the server last said anything (a list, an event, a bookmark: at least one a minute)."""
        return _age_s(self._heard_at)

    async def run(self) -> None:
        """Follow the API server until cancelled."""
        while True:
            try:
                if not self._resource_version:
                    if self.synced.is_set():
                        await asyncio.sleep(self._relist_delay_s())
                    await self._list()
                await self._follow()
                continue
            except (errors.Expired, _Malformed) as error:
                self._resource_version = ""
                self._restarts += 1
                problem: Exception = error
                delay_s = self._backoff.delay_s(self._restarts)
            except errors.ClusterError as error:
                self._failures += 1
                problem = error
                delay_s = self._backoff.delay_s(self._failures)
            if isinstance(problem, errors.Unavailable) and problem.retry_after_s is not None:
                delay_s = max(delay_s, problem.retry_after_s)
            log.warning("watch of %s: %s; going on in %.1f s", self.resource.plural, problem, delay_s)
            await asyncio.sleep(delay_s)

    # --- list

    async def list_anew(self) -> None:
        """Bring the cache to what the API server has now, whatever has become of the watch. It goes on as it was.

        Raises ClusterError; what was known stays known then.
        """
        try:
            await self._list()
        except _Malformed as error:
            raise errors.Unavailable(f"LIST {self.resource.plural}: {error}") from error

    async def _list(self) -> None:
        try:
            found, resource_version = await self._read_list(self._page_objects)
        except errors.Expired:
            # The pages took longer than the server keeps a resourceVersion. One answer has no such limit.
            found, resource_version = await self._read_list(0)
        self._heard()
        self._listed_at = self._heard_at
        if self._has_come_to(resource_version):
            return  # the watch, or another list, came further meanwhile
        for key in [key for key in self._objects if key not in found]:
            self._forget(key)
        for key, obj in found.items():
            self._keep(key, obj)
        self._on_list(found.values(), int(resource_version) if resource_version.isdecimal() else 0)
        self._resource_version = resource_version
        self.lists += 1
        self.synced.set()

    async def _read_list(self, page_objects: int) -> tuple[dict[Key, Object], str]:
        found: dict[Key, Object] = {}
        resource_version = ""
        pages = self._cluster.pages(
            self.resource, self._namespace, label_selector=self._label_selector, limit=page_objects
        )
        async for page in pages:
            try:
                found |= {key_of(obj): obj for obj in map(self._kept, filter(self._keeps, page.items))}
            except _NOT_AN_OBJECT as error:
                raise _Malformed(f"list has an item that is no object: {error!r}") from error
            resource_version = page.resource_version
        return found, resource_version

    # --- watch

    async def _follow(self) -> None:
        """One watch request, to its end. Raises what ``run`` handles."""
        timeout_s = random.randint(_WATCH_MIN_S, _WATCH_MAX_S)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with self._cluster.watch_lines(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            resource_version=self._resource_version,
            timeout_s=timeout_s,
        ) as lines:
            async for line in lines:
                if line.strip():
                    self._event(line)
                    self._failures = self._restarts = 0
        if loop.time() - began >= _SHORTEST_WATCH_S:
            self._failures = self._restarts = 0
        elif self._heard_at is None or self._heard_at < began:
            self._failures += 1
            await asyncio.sleep(self._backoff.delay_s(self._failures))

    def _event(self, line: bytes) -> None:
        try:
            event = orjson.loads(line)
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                raise _stream_error(self.resource, obj)
            resource_version: str = obj["metadata"]["resourceVersion"]
            if kind != "BOOKMARK":
                change = Change(kind)
                key = key_of(obj)
                slimmed = self._kept(obj) if self._keeps(obj) else None
        except _NOT_AN_OBJECT as error:
            raise _Malformed(f"a line of {len(line)} bytes is no watch event: {error!r}") from error
        self._heard()
        if self._has_come_to(resource_version):
            return  # a list that was made beside the watch has told it
        self._resource_version = resource_version
        if kind == "BOOKMARK":
            return
        if change is Change.DELETED or slimmed is None:
            self._forget(key)
        else:
            self._keep(key, slimmed)

    def _has_come_to(self, version: str) -> bool:
        """Whether the cache shows all that happened up to there. Not where versions cannot be compared."""
        ours = self._resource_version
        return version.isdecimal() and ours.isdecimal() and int(ours) >= int(version)

    # --- cache

    def _kept(self, obj: Object) -> Object:
        slimmed = self.slim(obj)
        # Both are read later, where there is no way back: fail here, where a new list heals it.
        slimmed["metadata"]["uid"], slimmed["metadata"]["resourceVersion"]
        return slimmed

    def _keep(self, key: Key, new: Object) -> None:
        old = self._objects.get(key)
        if old is not None and old["metadata"]["uid"] != new["metadata"]["uid"]:
            self._forget(key)
            old = None
        if old is not None and old["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]:
            return
        self._objects[key] = new
        self._tell(Change.ADDED if old is None else Change.MODIFIED, old, new)

    def _forget(self, key: Key) -> None:
        old = self._objects.pop(key, None)
        if old is not None:
            self._tell(Change.DELETED, old, None)

    def _tell(self, change: Change, old: Object | None, new: Object | None) -> None:
        try:
            self._on_event(change, old, new)
        except Exception:
            # A bug in one listener must not stop the cache that everybody reads.
            log.exception("watch of %s: a listener failed on %s", self.resource.plural, change)

    def _heard(self) -> None:
        self._heard_at = asyncio.get_running_loop().time()


def _age_s(moment: float | None) -> float | None:
    return None if moment is None else asyncio.get_running_loop().time() - moment


def _stream_error(resource: Resource, status: Object) -> Exception:
    """An ERROR event. 410 is the usual one; after any other the state of the watch is unknown too, so list again."""
    code, message = status.get("code"), str(status.get("message") or "")[: errors.SERVER_MESSAGE_MAX_CHARS]
    return errors.Expired(f"WATCH {resource.plural}: {code}: {message}", status=code if isinstance(code, int) else 0)

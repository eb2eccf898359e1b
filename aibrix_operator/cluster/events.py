"""Kubernetes Events, as ``kubectl describe`` shows them: never in the way, never a flood.

``emit`` only notes. Equal Events of one object (type, reason, message) become one object whose count grows, repeats
that wait for the API server merge into one write, and an object has 25 in a burst and then one per 5 minutes, as Go
clients allow. What does not get through is counted in ``dropped`` and told to nobody else.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol, TypeAlias

from aibrix_operator.cluster import errors, work_queue
from aibrix_operator.cluster.backoff import Backoff
from aibrix_operator.cluster.resource import EVENTS, Object, Resource

log = logging.getLogger(__name__)

MESSAGE_MAX_BYTES = 1024
BURST = 25
REFILL_S = 300.0
# As client-go's caches: beyond it the object or written series not used for the longest time is forgotten.
_REMEMBERED = 4096
# 3,000 claims created at once say one thing each before the first is written.
_MAX_WAITING = 8192
# As client-go: Events give way to the writes that they tell of.
_WRITERS = 1
_TRIES = 6
_BACKOFF = Backoff(initial_s=0.5, max_s=10)
# An object name has at most 253 characters; the rest is for "." and the time in hexadecimal.
_NAME_MAX_CHARS = 253 - 1 - 16

EventType: TypeAlias = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """What an Event is about; ``kubectl describe`` finds it by name, namespace and uid."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Equal Events are one series."""

    regarding: ObjectReference
    type: EventType
    reason: str
    message: str


@dataclass(slots=True)
class _Series:
    action: str
    count: int
    first_at: datetime
    last_at: datetime
    event_name: str
    is_stored: bool = False
    """The API server has the Event object."""
    written_count: int = 0
    failures: int = 0


class EventWriter(Protocol):
    """The two calls of ``client.Cluster`` that Events need."""

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object: ...

    async def patch(self, resource: Resource, namespace: str, name: str, patch: Object) -> Object: ...


def _now() -> datetime:
    return datetime.now(UTC)


class EventRecorder:
    """Writes what ``emit`` notes, from ``start`` to ``stop``. Everything here may be lost with the process."""

    def __init__(
        self, writer: EventWriter, *, component: str, instance: str, now: Callable[[], datetime] = _now
    ) -> None:
        """``component`` is the controller's name, ``instance`` the Pod's."""
        self._writer = writer
        self._component = component
        self._instance = instance
        self._now = now
        self._series: collections.OrderedDict[SeriesKey, _Series] = collections.OrderedDict()
        self._limits: collections.OrderedDict[ObjectReference, _Bucket] = collections.OrderedDict()
        self._queue = work_queue.WorkQueue("events", self._write, workers=_WRITERS)
        self._unwritten: set[SeriesKey] = set()
        self._all_written = asyncio.Event()
        self._last_name_ns = 0
        self.dropped = 0

    def start(self) -> None:
        self._queue.start()

    async def stop(self, grace_s: float) -> None:
        """Write what waits, for at most ``grace_s``; the rest is dropped."""
        if self._unwritten:
            self._all_written.clear()
            with contextlib.suppress(TimeoutError):  # what is late is counted below
                await asyncio.wait_for(self._all_written.wait(), grace_s)
        await self._queue.stop(grace_s=0)
        self.dropped += len(self._unwritten)
        self._unwritten.clear()

    def emit(self, regarding: ObjectReference, type: EventType, reason: str, message: str, action: str) -> None:  # noqa: A002  # the field's name
        """Note an Event; never waits and never fails. ``action`` is what was done or tried, in CamelCase."""
        if not self._may_speak(regarding):
            self.dropped += 1
            return
        key = SeriesKey(regarding, type, reason, cut(message))
        now = self._now()
        series = self._series.get(key)
        if series is None:
            if len(self._unwritten) >= _MAX_WAITING:
                self.dropped += 1
                return
            self._series[key] = _Series(action, 1, now, now, self._event_name(regarding, now))
        else:
            series.count += 1
            series.last_at = now
            self._series.move_to_end(key)
        self._unwritten.add(key)
        self._queue.wake(key)

    def _may_speak(self, regarding: ObjectReference) -> bool:
        bucket = self._limits.get(regarding)
        if bucket is None:
            bucket = self._limits[regarding] = _Bucket()
            if len(self._limits) > _REMEMBERED:
                self._limits.popitem(last=False)
        else:
            self._limits.move_to_end(regarding)
        return bucket.take(asyncio.get_running_loop().time())

    # --- writing, one pass of the queue per series

    async def _write(self, key: SeriesKey) -> None:
        series = self._series.get(key)
        if series is None or series.count == series.written_count:
            return  # an earlier pass has done what this one was woken for
        count = series.count
        try:
            await self._put(key, series)
        except errors.ClusterError as error:
            self._failed(key, series, error)
            return
        series.written_count = count
        series.failures = 0
        if series.count == count:
            self._written(key)

    async def _put(self, key: SeriesKey, series: _Series) -> None:
        namespace = key.regarding.namespace
        if series.is_stored:
            patch: Object = {"count": series.count, "lastTimestamp": _timestamp(series.last_at)}
            try:
                await self._writer.patch(EVENTS, namespace, series.event_name, patch)
            except errors.NotFound:
                # Events live for an hour. Go on counting in a new one.
                series.is_stored = False
                series.event_name = self._event_name(key.regarding, series.last_at)
            else:
                return
        body = self._body(key, series)
        # An earlier try of ours may have been done without our seeing the answer.
        with contextlib.suppress(errors.AlreadyExists):
            await self._writer.create(EVENTS, namespace, body)
        series.is_stored = True

    def _failed(self, key: SeriesKey, series: _Series, error: errors.ClusterError) -> None:
        series.failures += 1
        if error.temporary and series.failures < _TRIES:
            retry_after_s = error.retry_after_s if isinstance(error, errors.Unavailable) else None
            self._queue.wake_after(key, max(_BACKOFF.delay_s(series.failures), retry_after_s or 0.0))
            return
        log.warning("Event %s of %s/%s dropped: %s", key.reason, key.regarding.namespace, key.regarding.name, error)
        self.dropped += series.count - series.written_count
        del self._series[key]
        self._written(key)

    def _written(self, key: SeriesKey) -> None:
        """Nothing of ``key`` waits any more. The oldest series are forgotten; their next Event starts a new one."""
        self._unwritten.discard(key)
        if not self._unwritten:
            self._all_written.set()
        while len(self._series) > _REMEMBERED and next(iter(self._series)) not in self._unwritten:
            self._series.popitem(last=False)

    def _event_name(self, regarding: ObjectReference, at: datetime) -> str:
        """The time in nanoseconds makes it unique, as in client-go; kubectl shows no name."""
        self._last_name_ns = max(self._last_name_ns + 1, int(at.timestamp() * 1e6) * 1000)
        return f"{regarding.name[:_NAME_MAX_CHARS]}.{self._last_name_ns:x}"

    def _body(self, key: SeriesKey, series: _Series) -> Object:
        regarding = key.regarding
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": regarding.namespace, "name": series.event_name},
            "involvedObject": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "namespace": regarding.namespace,
                "name": regarding.name,
                "uid": regarding.uid,
            },
            "type": key.type,
            "reason": key.reason,
            "message": key.message,
            "action": series.action,
            "count": series.count,
            "firstTimestamp": _timestamp(series.first_at),
            "lastTimestamp": _timestamp(series.last_at),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


class _Bucket:
    """One object's allowance: ``BURST`` at once, then one every ``REFILL_S``."""

    __slots__ = ("_at", "_tokens")

    def __init__(self) -> None:
        self._tokens = float(BURST)
        self._at: float | None = None

    def take(self, at: float) -> bool:
        """Whether one is left at loop time ``at``; it is gone then."""
        if self._at is not None:
            self._tokens = min(BURST, self._tokens + (at - self._at) / REFILL_S)
        self._at = at
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def cut(message: str) -> str:
    """``message`` in at most 1,024 bytes of UTF-8, cut between two characters and marked with an ellipsis."""
    encoded = message.encode(errors="replace")
    if len(encoded) <= MESSAGE_MAX_BYTES:
        return encoded.decode()
    mark = "…"
    return encoded[: MESSAGE_MAX_BYTES - len(mark.encode())].decode(errors="ignore") + mark


def _timestamp(moment: datetime) -> str:
    """The API's form of a time: UTC, whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

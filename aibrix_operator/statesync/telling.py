"""The fast path beside the loop: changes are published within milliseconds, and peers apply them as they come.

It may lose messages at any time. Numbers and beats (``news.py``) tell that one was lost, and the loop repairs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping

from aibrix_operator.statesync import news
from aibrix_operator.statesync.entry import Entry, Fate
from aibrix_operator.statesync.pull import Tools
from aibrix_operator.statesync.store import FAILURES, describe
from aibrix_operator.statesync.syncable import Announcing

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 250
"""Entities in one message."""
MOST_BYTES = 256 * 1024
"""Of values in one message. A bigger value is left to the loop: Redis cuts off listeners that fall far behind."""
PUBLISH_TIMEOUT_S = 1.0
LISTEN_AGAIN_S = 1.0
TELL_AGAIN_S = 1.0
SILENT_PERIODS = 60
"""A replica beats in every cycle. One that did not for so many is gone."""


class Teller:
    """Publishes for all entries that announce, and hears for them."""

    def __init__(self, sender: str, entries: Collection[Entry], tools: Tools) -> None:
        self._sender = sender
        self._entries = {e.namespace: e for e in entries if e.announcing is not None}
        self._tools = tools
        self._waiting: set[str] = set()
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen and to tell. Without an entry that announces, nothing happens."""
        if not self._entries:
            return
        for entry, announcing in self._announcing():
            announcing.announce_to(self._waker(entry.namespace))
        self._tasks.append(asyncio.create_task(self._tell_for_ever(), name="statesync-tell"))
        self._listening = asyncio.create_task(self._listen_for_ever(), name="statesync-listen")

    async def stop(self) -> None:
        """What was not told yet is left to the loops of others."""
        for _, announcing in self._announcing():
            announcing.announce_to(None)
        tasks = [*self._tasks, *([self._listening] if self._listening else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=PUBLISH_TIMEOUT_S)
        self._tasks, self._listening = [], None

    def _announcing(self) -> Iterator[tuple[Entry, Announcing]]:
        for entry in self._entries.values():
            if entry.announcing is not None:
                yield entry, entry.announcing

    def _waker(self, namespace: str) -> Callable[[], None]:
        def wake() -> None:
            self._waiting.add(namespace)
            self._woken.set()

        return wake

    async def _tell_for_ever(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            waiting, self._waiting = self._waiting, set()
            arrived = [await self._tell_safely(self._entries[namespace]) for namespace in waiting]
            await asyncio.sleep(self._tools.options.announce_interval_s if all(arrived) else TELL_AGAIN_S)

    async def _tell_safely(self, entry: Entry) -> bool:
        try:
            return await self.tell(entry)
        except Exception:  # a component's own fault: others are told, and the loop brings the rest
            logger.exception("changes of %s were not told", entry.namespace)
            return True

    async def tell(self, entry: Entry) -> bool:
        """Publish what was not told yet. A failure (False) loses all of it: it is dirty still, and the numbers tell of
        the gap."""
        while entry.announcing is not None and (changes := entry.announcing.take_news(MOST_AT_ONCE)) is not None:
            if not changes.updated and not changes.deleted:
                break  # a component that says "nothing" in another way must not hold up the event loop
            values = entry.allowed(entry.announcing.encode(changes.updated), self._tools.now_s())
            if entry.tombstones is not None:
                for entity in changes.deleted:
                    values[entity] = entry.tombstones.make_tombstone(entity)
            if not await self.send(entry, values):
                entry.announcing.announce_to(self._waker(entry.namespace))  # forgets what waits to be told
                return False
        return True

    async def send(self, entry: Entry, values: Mapping[str, bytes]) -> bool:
        """Publish ``values``, in messages of a bounded size. False: Redis took one of them not, and none after it."""
        fitting = {entity: data for entity, data in values.items() if len(data) <= MOST_BYTES}
        async with entry.sending:
            if len(fitting) < len(values):
                entry.last_number += 1  # a number that nobody hears: peers pull after the next beat
            for part in _parts(fitting):
                entry.last_number += 1
                if not await self._publish(entry, news.Message(self._sender, entry.last_number, part)):
                    return False
            return True

    async def tell_all(self, entry: Entry) -> int:
        """Before a push. Returns the number of the last message: what was told until then will be in Redis after it."""
        await self._tell_safely(entry)
        return entry.last_number

    async def beat(self, entry: Entry, number: int, refreshed: frozenset[int]) -> None:
        """Say after a push what was put right, which message was the last before it, and what was written anew."""
        mended, entry.mended = entry.mended, {}
        if entry.announcing is None:
            return
        if mended:
            await self.send(entry, mended)
        async with entry.sending:
            entry.beats_sent += 1
            entry.last_beat_s = self._tools.now_s()
            message = news.Message(self._sender, number, beat=entry.beats_sent, refreshed=refreshed)
            await self._publish(entry, message)

    async def _publish(self, entry: Entry, message: news.Message) -> bool:
        try:
            async with asyncio.timeout(PUBLISH_TIMEOUT_S):
                await self._tools.store.publish(entry.namespace, news.encode(message))
        except FAILURES as error:
            self._tools.metrics.errors.labels(entry.namespace, "publish").inc()
            logger.debug("%s: message %d was not published: %s", entry.namespace, message.number, describe(error))
            return False
        self._tools.metrics.messages.labels(entry.namespace, "published").inc()
        return True

    async def _listen_for_ever(self) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._tools.store.news(list(self._entries))) as heard:
                    async for namespace, payload in heard:
                        self.hear(namespace, payload)
            except FAILURES as error:
                logger.info(
                    "changes of peers come with the next cycles only, until listening works again: %s", describe(error)
                )
            except Exception:  # nobody waits for this task: it must not end
                logger.exception("listening to peers failed, and begins anew")
            finally:
                self._set_listening(self._entries.values(), False)
            await asyncio.sleep(LISTEN_AGAIN_S)

    def _set_listening(self, entries: Collection[Entry], listening: bool) -> None:
        for entry in entries:
            entry.listening = listening
            self._tools.metrics.listening.labels(entry.namespace).set(listening)

    def hear(self, namespace: str, payload: bytes | None) -> None:
        """One message; None: listening begins now, so that whatever was said before was missed."""
        entry = self._entries[namespace]
        if payload is None:
            self._set_listening([entry], True)
            entry.whole_due = entry.whole_due or "listening"
            return
        try:
            message = news.decode(payload)
        except news.BadMessage as error:
            self._tools.metrics.errors.labels(namespace, "hear").inc()
            logger.warning("%s: a message was not understood: %s", namespace, error)
            return
        if message.sender == self._sender:
            entry.beats_heard = max(entry.beats_heard, message.beat)
            return
        self._hear_peer(entry, message)

    def _hear_peer(self, entry: Entry, message: news.Message) -> None:
        now_s = self._tools.now_s()
        self._tools.metrics.messages.labels(entry.namespace, "heard").inc()
        if entry.heard.must_pull(message, now_s):
            entry.whole_due = entry.whole_due or "gap"
        if entry.refresh is not None:
            entry.refresh.written(message.refreshed, now_s)
        for entity, data in message.entities.items():
            fate = entry.receive(entity, data, now_s)
            # Stale ones are deleted, and deletions defended, by whoever finds them in Redis.
            if fate not in (Fate.STALE, Fate.DELETED_BEFORE):
                op = Fate.APPLIED if fate is Fate.AHEAD else fate
                self._tools.metrics.entities.labels(entry.namespace, op.value).inc()

    async def check(self) -> None:
        """At the start of a cycle: who did not hear its own last beat listens to a dead connection, and begins anew."""
        # Cycles are at least half a period apart, unless somebody runs them by hand.
        sent_before_s = self._tools.now_s() - self._tools.options.period_s / 2
        listening = [e for e in self._entries.values() if e.listening]
        deaf = [e for e in listening if e.beats_heard < e.beats_sent and e.last_beat_s <= sent_before_s]
        for entry in self._entries.values():
            entry.heard.drop_silent(self._tools.now_s() - SILENT_PERIODS * self._tools.options.period_s)
        if not deaf or self._listening is None:
            return
        self._listening.cancel()
        await asyncio.wait([self._listening], timeout=PUBLISH_TIMEOUT_S)
        for entry in deaf:
            entry.whole_due = entry.whole_due or "deaf"
            entry.beats_heard = entry.beats_sent
        self._listening = asyncio.create_task(self._listen_for_ever(), name="statesync-listen")


def _parts(values: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """``values`` in pieces of a bounded size, each value being smaller than that."""
    part: dict[str, bytes] = {}
    size = 0
    for entity, data in values.items():
        if part and size + len(data) > MOST_BYTES:
            yield part
            part, size = {}, 0
        part[entity] = data
        size += len(data)
    if part:
        yield part

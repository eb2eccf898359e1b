"""One reader per Pod: hears from its runtime, and keeps the last answer. No pass ever waits for a runtime.

A runtime with a change feed tells of changes as they come, and is read once a round for what is no change (its load);
upstream's sidecar has no feed and is read again and again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from http import HTTPStatus
from typing import Protocol, TypeAlias

from aibrix_operator.modelclaim.draft import ROUND_S
from aibrix_operator.modelclaim.snapshot import Reading
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.client import base_url
from aibrix_operator.runtime_api.outcome import Done, NotSent, Outcome, Refused, Unknown

FASTEST_PACE_S = 1.0
REST_S = 0.1
"""So long the feed is left in peace after an answer: what changes together is read together."""
AHEAD_S = 0.25
"""So much before a reading is due the feed is to bring it: the pass that is due then should find it there."""
FEED_AGAIN_S = 300.0
"""How long a runtime without a feed is read without asking for one. A failed reading ends that, since whoever answers
next may be another sidecar."""
BREAKS_TO_GIVE_UP = 3
"""A path on which so many polls in a row break off lets none through: the runtime is read as if it had no feed."""

Answered: TypeAlias = Outcome[wire.Snapshot] | Outcome[wire.ChangesResponse]


class Runtimes(Protocol):
    """The calls of the runtime sidecar's client (``runtime_api.client.RuntimeClient``)."""

    async def snapshot(self, base: str) -> Outcome[wire.Snapshot]: ...

    async def changes(self, base: str, since: str, timeout_s: float) -> Outcome[wire.ChangesResponse]: ...

    async def activate(self, base: str, request: wire.ActivateRequest) -> Outcome[wire.ActivateResponse]: ...

    async def deactivate(self, base: str, request: wire.DeactivateRequest) -> Outcome[wire.DeactivateResponse]: ...

    async def sleep(self, base: str, request: wire.SleepRequest) -> Outcome[wire.OperationResponse]: ...

    async def wake(self, base: str, request: wire.WakeRequest) -> Outcome[wire.OperationResponse]: ...

    async def set_kv_limit(self, base: str, request: wire.KVLimitRequest) -> Outcome[wire.OperationResponse]: ...


def _said(snapshot: wire.Snapshot) -> Hashable:
    """What of a snapshot can concern a decision: not its time, nor figures that differ between any two readings."""
    cards = tuple((a.id, a.hbm_total_bytes, a.hbm_usable_bytes) for a in snapshot.accelerators)
    models = tuple(m.model_copy(update={"hbm_peak_bytes": 0}) if m.hbm_peak_bytes else m for m in snapshot.models)
    return cards, models, snapshot.cached_artifacts


class Reader:
    """Reads one Pod's runtime from ``start`` to ``stop``. ``changed`` is called when an answer says something new.

    One call is under way at a time. Between the readings that are due it waits at the runtime's change feed, which
    answers with the next change, or with the due reading. A runtime without a feed is read when due and no sooner.
    """

    def __init__(self, ip: str, runtimes: Runtimes, changed: Callable[[], None]) -> None:
        self.ip = ip
        self.reading = Reading()
        self._base = base_url(ip)
        self._runtimes = runtimes
        self._changed = changed
        self._poked = asyncio.Event()
        self._due_s = 0.0
        self._pace_s = ROUND_S
        self._discards = 0
        self._said: Hashable = None
        self._version = ""
        """What the feed gave with the reading; empty when there is no feed to wait at."""
        self._rested_s = 0.0
        """When the feed may be asked for the next change."""
        self._feed_again_s = 0.0
        """When the runtime is asked for a feed; it has none until then."""
        self._breaks = 0
        """Polls of the feed that broke off, since one was answered."""
        self._failures = 0
        """Readings that failed, since one did not."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read, at once."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"reader of {self.ip}")

    def stop(self) -> None:
        """Stop reading; the last reading stays."""
        if self._task is not None:
            self._task.cancel()

    def discard(self) -> None:
        """Forget the reading, because the runtime was written to or broke off its feed, and read anew at once.

        An answer on its way counts for nothing either: it may have been made before.
        """
        self._discards += 1
        self.reading = Reading(sequence=self.reading.sequence, largest_bytes=self.reading.largest_bytes)
        self._said = None
        self._version = ""
        self.look_again(0.0)

    def set_pace(self, seconds: float) -> None:
        """Read every ``seconds`` from now on (at most once a second), and the next time after ``seconds``."""
        self._pace_s = max(FASTEST_PACE_S, seconds)
        self.look_again(seconds)

    def look_again(self, seconds: float) -> None:
        """Read again after ``seconds`` at the latest, once."""
        due_s = asyncio.get_running_loop().time() + seconds
        if due_s < self._due_s:
            self._due_s = due_s
            self._poked.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._pause(self._rested_s if self._version else math.inf)
            if self._version and self._due_s - loop.time() > AHEAD_S:
                await self._follow()
            else:
                await self._pause(math.inf)
                await self._read()

    async def _pause(self, until_s: float) -> None:
        """Return at ``until_s``, or when a reading is due."""
        while (moment_s := min(until_s, self._due_s)) > asyncio.get_running_loop().time():
            await self._poke_or(moment_s)

    async def _poke_or(self, moment_s: float) -> None:
        """Return when something is new for the reader, and at ``moment_s`` at the latest."""
        self._poked.clear()
        handle = None
        if moment_s < math.inf:
            handle = asyncio.get_running_loop().call_at(moment_s, self._poked.set)
        try:
            await self._poked.wait()
        finally:
            if handle is not None:
                handle.cancel()

    async def _read(self) -> None:
        """Read at once: the reading that is due."""
        self._due_s = asyncio.get_running_loop().time() + self._pace_s
        discards = self._discards
        outcome = await self._ask()
        if discards == self._discards:
            self._take(outcome)

    async def _ask(self) -> Answered:
        """The snapshot of now, with its version when the runtime has a feed."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._feed_again_s:
            outcome = await self._runtimes.changes(self._base, "", 0.0)
            if not _says_no_feed(outcome):
                return outcome
            self._feed_again_s = now_s + FEED_AGAIN_S
        return await self._runtimes.snapshot(self._base)

    async def _follow(self) -> None:
        """Wait at the feed until it answers, a reading is due before it would, or the runtime was written to."""
        loop = asyncio.get_running_loop()
        discards, since, ends_s = self._discards, self._version, self._due_s - AHEAD_S
        call = loop.create_task(self._runtimes.changes(self._base, since, ends_s - loop.time()))
        call.add_done_callback(lambda _: self._poked.set())
        try:
            while not call.done() and discards == self._discards:
                moment_s = self._due_s if self._due_s < ends_s else math.inf
                if moment_s <= loop.time():
                    break
                await self._poke_or(moment_s)
        finally:
            call.cancel()
        if call.done() and discards == self._discards:
            self._take_followed(call.result(), since, ends_s)

    def _take_followed(self, outcome: Outcome[wire.ChangesResponse], since: str, ends_s: float) -> None:
        now_s = asyncio.get_running_loop().time()
        if _says_no_feed(outcome):
            self._do_without_feed()
        elif isinstance(outcome, Unknown) and now_s < ends_s:
            # A connection that breaks may be the sidecar's end, or that of something between: reading tells, and until
            # then nobody knows what is there.
            self._breaks += 1
            if self._breaks >= BREAKS_TO_GIVE_UP:
                self._do_without_feed()
            self.discard()
        else:
            self._breaks = 0
            if now_s >= ends_s or (isinstance(outcome, Done) and outcome.answer.version == since):
                self._due_s = now_s + AHEAD_S + self._pace_s
            self._take(outcome)

    def _do_without_feed(self) -> None:
        self._version = ""
        self._breaks = 0
        self._feed_again_s = asyncio.get_running_loop().time() + FEED_AGAIN_S
        self.look_again(0.0)

    def _take(self, outcome: Answered) -> None:
        sequence = self.reading.sequence + 1
        now_s = asyncio.get_running_loop().time()
        self._version = ""
        if isinstance(outcome, Done):
            snapshot = outcome.answer
            if isinstance(snapshot, wire.ChangesResponse):
                self._version, snapshot = snapshot.version, snapshot.snapshot
                self._rested_s = now_s + REST_S
            self._failures = 0
            largest_bytes = max(self.reading.largest_bytes, snapshot.usable_bytes)
            self.reading = Reading(sequence, snapshot, largest_bytes=largest_bytes)
            said = _said(snapshot)
        else:
            is_left_alone = isinstance(outcome, NotSent) and outcome.left_alone
            self._feed_again_s = 0.0  # whoever answers next may be another sidecar
            self._failures += 1
            self.look_again(min(self._pace_s, FASTEST_PACE_S * 2 ** min(self._failures - 1, 10)))
            largest_bytes = self.reading.largest_bytes
            self.reading = Reading(sequence, None, outcome.message, is_left_alone, largest_bytes)
            said = (type(outcome), is_left_alone)
        if said != self._said:
            self._said = said
            self._changed()


def _says_no_feed(outcome: Answered) -> bool:
    """Whether the sidecar does not know the call: upstream's."""
    return isinstance(outcome, Refused) and outcome.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)

"""One reader per Pod: asks its runtime again and again, and keeps the last answer. No pass ever waits for a runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Protocol

from aibrix_operator.modelclaim.draft import ROUND_S
from aibrix_operator.modelclaim.snapshot import Reading
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.client import base_url
from aibrix_operator.runtime_api.outcome import Done, NotSent, Outcome

FASTEST_PACE_S = 1.0


class Runtimes(Protocol):
    """The calls of the runtime sidecar's client (``runtime_api.client.RuntimeClient``)."""

    async def snapshot(self, base: str) -> Outcome[wire.Snapshot]: ...

    async def activate(self, base: str, request: wire.ActivateRequest) -> Outcome[wire.ActivateResponse]: ...

    async def deactivate(self, base: str, request: wire.DeactivateRequest) -> Outcome[wire.DeactivateResponse]: ...

    async def sleep(self, base: str, request: wire.SleepRequest) -> Outcome[wire.OperationResponse]: ...

    async def wake(self, base: str, request: wire.WakeRequest) -> Outcome[wire.OperationResponse]: ...

    async def set_kv_limit(self, base: str, request: wire.KVLimitRequest) -> Outcome[wire.OperationResponse]: ...


def _said(snapshot: wire.Snapshot) -> Hashable:
    """What of a snapshot can concern a decision: not its time, nor figures that differ between any two readings."""
    cards = tuple((a.id, a.hbm_total_bytes, a.hbm_usable_bytes) for a in snapshot.accelerators)
    models = tuple(m.model_copy(update={"hbm_peak_bytes": 0}) for m in snapshot.models)
    return cards, models, snapshot.cached_artifacts


class Reader:
    """Reads one Pod's runtime from ``start`` to ``stop``. ``changed`` is called when an answer says something new."""

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
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read, at once."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"reader of {self.ip}")

    def stop(self) -> None:
        """Stop reading; the last reading stays."""
        if self._task is not None:
            self._task.cancel()

    def discard(self) -> None:
        """Forget the reading, because the runtime was written to, and read anew at once.

        An answer on its way counts for nothing either: it may have been made before the write.
        """
        self._discards += 1
        self.reading = Reading(sequence=self.reading.sequence)
        self._said = None
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
            self._due_s = loop.time() + self._pace_s
            discards = self._discards
            outcome = await self._runtimes.snapshot(self._base)
            if discards == self._discards:
                self._take(outcome)
            else:
                self._due_s = loop.time()
            while (wait_s := self._due_s - loop.time()) > 0:
                self._poked.clear()
                handle = loop.call_later(wait_s, self._poked.set)
                try:
                    await self._poked.wait()
                finally:
                    handle.cancel()

    def _take(self, outcome: Outcome[wire.Snapshot]) -> None:
        sequence = self.reading.sequence + 1
        if isinstance(outcome, Done):
            snapshot = outcome.answer
            self.reading = Reading(sequence, snapshot)
            said = _said(snapshot)
        else:
            is_left_alone = isinstance(outcome, NotSent) and outcome.left_alone
            self.reading = Reading(sequence, error=outcome.message, is_left_alone=is_left_alone)
            said = (type(outcome), is_left_alone)
        if said != self._said:
            self._said = said
            self._changed()

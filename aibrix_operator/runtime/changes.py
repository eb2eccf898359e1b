"""The change feed: a version that moves when something about the engines does, and callers that wait for it.

One loop looks for all who wait. Records tell of their changes themselves, processes of their death; what nobody tells
(a booting engine's health, a limit that an engine rewrote) is looked at while somebody waits. What the engines are
busy with (requests, mapped KV, memory in use) moves nothing: that is read at the reader's own pace.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from aibrix_operator.runtime.deaths import DeathWatch
from aibrix_operator.runtime.fleet import Fleet
from aibrix_operator.runtime.launcher import Life
from aibrix_operator.runtime.observation import Observation
from aibrix_operator.runtime.records import EngineRecord
from aibrix_operator.runtime_api.wire import ChangesResponse, EnginePhase

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often is looked while somebody waits and no engine is about to change."""
FAST_LOOK_S = 0.15
"""How often while an engine boots or stops."""
FAST_FOR = timedelta(minutes=10)
"""After so long in one phase an engine is not about to change any more."""

ABOUT_TO_CHANGE = frozenset({EnginePhase.BOOTING, EnginePhase.STOPPING})


@dataclass(frozen=True, slots=True)
class Seen:
    """What of one engine moves the version."""

    record: EngineRecord
    alive: bool
    ready: bool
    limit_bytes: int


class ChangeFeed:
    """The feed of one sidecar. Used within one event loop."""

    def __init__(self, fleet: Fleet, observation: Observation, look_soon: Callable[[], None]) -> None:
        """``look_soon`` makes the supervisor look before its next second is over."""
        self._fleet = fleet
        self._observation = observation
        self._look_soon = look_soon
        self._process = secrets.token_hex(8)
        self._count = 0
        self._seen: dict[str, Seen] = {}
        self._ready_as: dict[str, EngineRecord] = {}
        """Model name → the booting engine that last answered its health check."""
        self._probes: dict[str, asyncio.Task[None]] = {}
        self._deaths = DeathWatch(fleet.launcher, self.poke)
        self._poked = asyncio.Event()
        self._moved: asyncio.Future[None] | None = None
        self._waiting = 0
        self._is_closing = False
        self._telling: asyncio.Task[bytes] | None = None
        fleet.on_change = self.poke

    @property
    def version(self) -> str:
        """No other process of a sidecar ever gives the same, so that a restarted one answers at once."""
        return f"{self._process}-{self._count}"

    def poke(self) -> None:
        """Something may have changed: look at once."""
        self._poked.set()

    async def wait(self, since: str, timeout_s: float, hung_up: Callable[[], Awaitable[None]]) -> None:
        """Return once the version differs from ``since``, ``timeout_s`` is over, the caller hung up or we close."""
        if since != self.version or timeout_s <= 0 or self._is_closing:
            return
        if self._moved is None:
            self._moved = asyncio.get_running_loop().create_future()
        leaving = asyncio.ensure_future(hung_up())
        self._waiting += 1
        self.poke()
        try:
            await asyncio.wait({self._moved, leaving}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting -= 1
            leaving.cancel()

    async def tell(self) -> bytes:
        """The answer's body: a snapshot begun after this call, with a version at most as new.

        Callers of one moment share one snapshot. Nobody shares one that has begun, so no slow one holds up another.
        """
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell(), name="snapshot of the change feed")
        return await asyncio.shield(self._telling)

    async def _tell(self) -> bytes:
        self._telling = None
        self._look()
        version = self.version
        snapshot = await self._observation.snapshot()
        return ChangesResponse(version=version, snapshot=snapshot).model_dump_json().encode()

    async def run(self) -> None:
        """Look until cancelled. One failing look must not end the feed, or callers would wait in vain."""
        try:
            while True:
                self._poked.clear()
                try:
                    self._look()
                    self._probe_booting()
                except Exception:
                    logger.exception("a look for changes failed; the next one is in %g s", LOOK_S)
                with contextlib.suppress(TimeoutError):  # then it is time for the next look
                    async with asyncio.timeout(self._pace_s()):
                        await self._poked.wait()
        finally:
            self.close()
            self._deaths.close()
            for probe in self._probes.values():
                probe.cancel()

    def close(self) -> None:
        """Answer all who wait, and let nobody wait any more: the server ends."""
        self._is_closing = True
        self._wake()

    def _wake(self) -> None:
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)
        self._moved = None

    def _pace_s(self) -> float | None:
        """Seconds to the next look; None when nobody waits, since records and processes tell by themselves."""
        if not self._waiting:
            return None
        now = self._fleet.clock()
        is_moving = any(
            record.phase in ABOUT_TO_CHANGE and now - record.last_transition < FAST_FOR
            for record in self._fleet.records.values()
        )
        return FAST_LOOK_S if is_moving or self._deaths.is_blind else LOOK_S

    def _look(self) -> None:
        """Compare with what was last seen: a few small reads an engine, no call to it."""
        records = self._fleet.records
        self._ready_as = {name: record for name, record in self._ready_as.items() if records.get(name) is record}
        self._deaths.watch(record.process for record in records.values() if record.process is not None)
        seen = {name: self._see(record) for name, record in records.items() if not _is_intent(record)}
        if any(self._concerns_supervisor(self._seen.get(name), now) for name, now in seen.items()):
            self._look_soon()
        if seen != self._seen:
            self._seen = seen
            self._count += 1
            self._wake()

    def _see(self, record: EngineRecord) -> Seen:
        alive = self._observation.is_alive(record)
        is_ready = record.phase is EnginePhase.ACTIVE or self._ready_as.get(record.model_name) is record
        return Seen(record, alive, alive and is_ready, self._observation.kv(record).capacity_bytes)

    def _concerns_supervisor(self, before: Seen | None, now: Seen) -> bool:
        """Whether the record has to follow: the engine died, has come up, or is gone at last."""
        if not now.alive:
            if now.record.phase is EnginePhase.STOPPING:
                return self._fleet.launcher.look(now.record.process) is Life.GONE
            return before is not None and before.alive
        return now.record.phase is EnginePhase.BOOTING and now.ready and (before is None or not before.ready)

    def _probe_booting(self) -> None:
        """Ask booting engines for their health while somebody waits. A slow answer holds up no other's."""
        if not self._waiting:
            return
        for name, seen in self._seen.items():
            if seen.record.phase is EnginePhase.BOOTING and seen.alive and name not in self._probes:
                probe = asyncio.get_running_loop().create_task(self._probe(seen.record), name=f"probe of {name}")
                self._probes[name] = probe

    async def _probe(self, record: EngineRecord) -> None:
        name = record.model_name
        try:
            is_ready = await self._fleet.door(record).is_ready()
        finally:
            del self._probes[name]
        was_ready = self._ready_as.pop(name, None) is record
        if is_ready:
            self._ready_as[name] = record
        if is_ready is not was_ready:
            self.poke()


def _is_intent(record: EngineRecord) -> bool:
    """Whether the engine is recorded and not launched yet: that lasts milliseconds, and would read as a death."""
    return record.phase is EnginePhase.BOOTING and record.process is None

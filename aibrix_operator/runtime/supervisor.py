"""Watches over the engines: takes over those that outlived the last sidecar, then looks at each every second or sooner.

All rules are in ``lifecycle.py``; this module sees, feeds and carries out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from aibrix_operator.runtime import lifecycle
from aibrix_operator.runtime.fleet import Fleet
from aibrix_operator.runtime.launcher import LaunchError
from aibrix_operator.runtime.lifecycle import Adoption, Order, Step
from aibrix_operator.runtime.records import EngineRecord

logger = logging.getLogger(__name__)

TICK_S = 1.0


class Supervisor:
    """The one supervisor of a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._asked = asyncio.Event()

    def look_soon(self) -> None:
        """Make the next look now instead of when its second is over: something is known to have happened."""
        self._asked.set()

    async def adopt(self) -> None:
        """Take over what the registry names. Before the first call is answered."""
        fleet = self._fleet
        async with fleet.operation_lock:
            await asyncio.to_thread(fleet.nvml.read)
            stored, invalid = await fleet.stored()
            fleet.counters.adoptions[Adoption.INVALID] += invalid
            first: dict[str, EngineRecord] = {}
            for record in stored:
                if record.model_name in first:
                    fleet.counters.adoptions[Adoption.DUPLICATE] += 1
                else:
                    first[record.model_name] = record
            sights = await asyncio.gather(*(fleet.sight(record) for record in first.values()))
            for record, sight in zip(first.values(), sights, strict=True):
                result, step = lifecycle.adopt(record, sight, fleet.clock(), fleet.stop_grace)
                fleet.counters.adoptions[result] += 1
                logger.info("engine %s of the last runtime agent: %s", record.model_name, result)
                self._carry_out(step)
            await fleet.save_or_retry()

    async def tick(self) -> None:
        """Look at every engine once and do what its phase asks for."""
        fleet = self._fleet
        async with fleet.operation_lock:
            records = tuple(fleet.records.values())
            sights = await asyncio.gather(*(fleet.sight(record) for record in records))
            for record, sight in zip(records, sights, strict=True):
                self._carry_out(lifecycle.saw(record, sight, fleet.clock(), fleet.stop_grace))
            await fleet.save_or_retry()

    async def run(self) -> None:
        """Tick until cancelled. One failing tick must not end supervision, or nothing would be restarted any more."""
        while True:
            with contextlib.suppress(TimeoutError):  # nobody asked, so the second is over
                async with asyncio.timeout(TICK_S):
                    await self._asked.wait()
            self._asked.clear()
            try:
                await self.tick()
            except Exception:
                logger.exception("a look at the engines failed; the next one is in %g s", TICK_S)

    def _carry_out(self, step: Step) -> None:
        fleet = self._fleet
        match step.order:
            case None:
                fleet.put(step.record)
            case Order.LAUNCH:
                fleet.put(self._relaunch(step.record))
            case Order.END_GROUP | Order.KILL_GROUP:
                fleet.put(fleet.signal(step.record, step.order))
            case Order.DROP:
                fleet.drop(step.record.model_name)

    def _relaunch(self, record: EngineRecord) -> EngineRecord:
        fleet = self._fleet
        fleet.counters.restart_attempts[record.model_name] += 1
        try:
            return fleet.launch(record)
        except LaunchError as error:
            return lifecycle.relaunch_failed(record, str(error), fleet.clock())

"""Where a page's looks come from: the caches of the operator's process. Calls nobody but runtimes that nobody reads.

The leading replica reads runtimes anyway, and the page takes those readings. Any other replica knows claims and Pods
from its watches; it reads runtimes itself, and only while somebody looks at its page.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Protocol

from aibrix_operator.explain.looking import Look
from aibrix_operator.modelclaim import known
from aibrix_operator.modelclaim.snapshot import Pod, Reading
from aibrix_operator.modelclaim.world import World
from aibrix_operator.runtime_api.client import base_url
from aibrix_operator.runtime_api.outcome import Done

READ_S = 2.0
"""A look waits no longer for a runtime."""
READS_AT_ONCE = 64
KEPT_S = 10.0
"""For so long the last reading stands in for one that the operator has discarded, because it wrote to the runtime."""


class Source(Protocol):
    """Whatever can look."""

    async def look(self) -> Look:
        """What there is now. CannotLook when nothing can be said."""
        ...


class WorldSource:
    """Looks at what an operator's process knows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kept: dict[str, tuple[float, Reading]] = {}
        """Pod UID → when its runtime last said something, on the event loop's clock, and what."""
        self._turns = asyncio.Semaphore(READS_AT_ONCE)

    async def look(self) -> Look:
        """All claims and warm Pods of the caches, each Pod with the reading that there is."""
        claims, unreadable = known.claims(self._world)
        pods = await asyncio.gather(*(self._read(pod) for pod in known.pods(self._world, claims)))
        uids = {pod.uid for pod in pods}
        self._kept = {uid: kept for uid, kept in self._kept.items() if uid in uids}
        return Look(known.fleets(claims, pods), unreadable)

    async def _read(self, pod: Pod) -> Pod:
        if not pod.is_running:
            return pod
        reading = pod.reading if pod.uid in self._world.readers else await self._ask(pod)
        now_s = self._world.monotonic_s()
        if reading.snapshot is not None:
            self._kept[pod.uid] = now_s, reading
        elif reading.is_pending and pod.uid in self._kept:
            since_s, kept = self._kept[pod.uid]
            reading = kept if now_s < since_s + KEPT_S else reading
        return dataclasses.replace(pod, reading=reading)

    async def _ask(self, pod: Pod) -> Reading:
        """Read a runtime that no reader of the operator reads. Its silence is not held against it."""
        try:
            # The turn is taken outside of the timeout: a Pod does not fall silent because others do.
            async with self._turns, asyncio.timeout(READ_S):
                outcome = await self._world.runtimes.snapshot(base_url(pod.ip))
        except TimeoutError:
            return Reading(1, error=f"runtime of {pod.name} did not answer within {READ_S:g} s")
        return Reading(1, outcome.answer) if isinstance(outcome, Done) else Reading(1, error=outcome.message)

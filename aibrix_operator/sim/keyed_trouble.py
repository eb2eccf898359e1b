"""Random schedules of faults for kinds with a pass per object. One seed is one schedule; what happened is told.

async with KeyedCluster(host, operators=2) as cluster:
    trouble = Trouble(cluster, seed)
    await trouble.play(1200, wishes)   # wishes: what users and nodes do meanwhile
    trouble.end()
    await cluster.run(120)             # calm: everything converges
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import Resource
from aibrix_operator.sim.keyed import KeyedCluster, KeyedOperator
from aibrix_operator.sim.store import Fault

Wish: TypeAlias = Callable[[random.Random], None]
"""Something that a user, a node or a controller of the cluster does."""
Undo: TypeAlias = Callable[[], None]

LASTS_S = 15.0
"""How long a fault lasts, on average."""
_GUARDED = ("status", "patch", "replace", "finalize", "delete")


class Trouble:
    """What happens to one cluster."""

    def __init__(self, cluster: KeyedCluster, seed: int) -> None:
        self.cluster = cluster
        self.counts: Counter[str] = Counter()
        """Fault → how often it happened."""
        self.story: list[str] = []
        self._chance = random.Random(f"{seed}/trouble")
        self._faults: list[Fault] = []
        self._lost: list[Fault] = []
        self._undo: list[tuple[asyncio.TimerHandle, Undo]] = []
        cluster.store.fault, cluster.store.lost = self._fault, self._loses
        cluster.store.late = self._late
        self._lateness = 0.0
        self._can_elect = len(cluster.operators) > 1
        self._kinds: Sequence[tuple[str, Callable[[], Awaitable[None] | None]]] = (
            ("killed operator", self._kill),
            ("stopped operator", self._stop),
            ("broken watches", self._deafen),
            ("slow watches", self._slow_down),
            ("conflicts", self._conflict),
            ("API server away", self._refuse),
            ("lost answers", self._lose),
            ("late calls", self._delay),
            ("wall clock off", self._set_clock),
            *((("cut off from the Lease", self._cut_off),) if self._can_elect else ()),
        )

    async def play(self, seconds: float, wishes: Sequence[Wish] = (), *, faults: int = 8, events: int = 12) -> None:
        """Let so many faults and wishes happen at random times. Raises ``LawBroken``."""
        began_s, loop = asyncio.get_running_loop().time(), asyncio.get_running_loop()
        moments = [(self._chance.uniform(0, seconds), True) for _ in range(faults)]
        moments += [(self._chance.uniform(0, seconds), False) for _ in range(events if wishes else 0)]
        for at_s, is_fault in sorted(moments):
            await self.cluster.run(max(0.0, began_s + at_s - loop.time()))
            if not is_fault:
                self._chance.choice(wishes)(self._chance)
                continue
            name, happen = self._chance.choice(self._kinds)
            self.tell(name)
            self.counts[name] += 1
            done = happen()
            if done is not None:
                await done
        await self.cluster.run(max(0.0, began_s + seconds - loop.time()))

    def end(self) -> None:
        """All faults that last are over, and somebody leads again soon."""
        for handle, undo in self._undo:
            if not handle.cancelled() and handle.when() > asyncio.get_running_loop().time():
                handle.cancel()
                undo()
        self._undo.clear()
        self._faults.clear()
        self._lost.clear()
        self._lateness = self.cluster.store.watch_delay_s = 0.0
        for operator in self.cluster.operators:
            operator.is_cut_off = False
            operator.clock_off_s = 0.0

    def tell(self, what: str) -> None:
        """A line of the story."""
        self.story.append(f"{asyncio.get_running_loop().time():9.3f} {what}")

    # --- the faults

    def _lasts(self, undo: Undo) -> None:
        seconds = self._chance.expovariate(1 / LASTS_S)
        self._undo.append((asyncio.get_running_loop().call_later(seconds, undo), undo))

    def _pick(self) -> KeyedOperator | None:
        """The leader, mostly: what happens to another matters less."""
        operators = self.cluster.operators
        if not operators:
            return None
        return self.cluster.leader or operators[0] if self._chance.random() < 0.7 else self._chance.choice(operators)

    async def _kill(self) -> None:
        operator = self._pick()
        if operator is not None:
            await self.cluster.kill_operator(operator)
            self._lasts(self._start)

    async def _stop(self) -> None:
        operator = self._pick()
        if operator is not None:
            await self.cluster.stop_operator(operator)
            self._lasts(self._start)

    def _start(self) -> None:
        self.cluster.start_operator()

    def _deafen(self) -> None:
        operator = self._pick()
        if operator is not None:
            operator.is_deaf = True
            self._lasts(operator.hear_again)

    def _cut_off(self) -> None:
        operator = self._pick()
        if operator is not None:
            operator.is_cut_off = True
            self._lasts(lambda: setattr(operator, "is_cut_off", False))

    def _set_clock(self) -> None:
        operator = self._pick()
        if operator is not None:
            operator.clock_off_s = self._chance.uniform(-300, 300)

    def _slow_down(self) -> None:
        self.cluster.store.watch_delay_s = self._chance.uniform(1, 20)
        self._lasts(lambda: setattr(self.cluster.store, "watch_delay_s", 0.0))

    def _delay(self) -> None:
        self._lateness = 0.4
        self._lasts(lambda: setattr(self, "_lateness", 0.0))

    def _conflict(self) -> None:
        self._fails(self._faults, lambda verb: errors.Conflict("it has been modified") if verb in _GUARDED else None)

    def _refuse(self) -> None:
        self._fails(self._faults, lambda verb: errors.Unavailable("away"))

    def _lose(self) -> None:
        self._fails(self._lost, lambda verb: errors.Unavailable("no answer"))

    def _fails(self, among: list[Fault], error: Callable[[str], Exception | None]) -> None:
        odds = self._chance.choice((0.3, 0.7, 1.0))

        def fault(verb: str, resource: Resource, name: str, body: Mapping[str, Any]) -> Exception | None:
            return error(verb) if self._chance.random() < odds else None

        among.append(fault)
        self._lasts(lambda: among.remove(fault) if fault in among else None)

    # --- as the store asks

    def _fault(self, verb: str, resource: Resource, name: str, body: Mapping[str, Any]) -> Exception | None:
        return next(filter(None, (fault(verb, resource, name, body) for fault in self._faults)), None)

    def _loses(self, verb: str, resource: Resource, name: str, body: Mapping[str, Any]) -> Exception | None:
        return next(filter(None, (fault(verb, resource, name, body) for fault in self._lost)), None)

    def _late(self, verb: str, resource: Resource, name: str) -> float | None:
        # A create that comes late has no version to guard it: what is too much then is a later pass's to take away.
        if verb == "create" or self._chance.random() >= self._lateness:
            return None
        return self._chance.uniform(0.5, 20.0)

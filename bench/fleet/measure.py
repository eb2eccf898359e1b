"""One run: claims are applied over a fresh API server, served, left idle, woken; then the operator is killed.

The benchmark's own process plays every runtime, so that it knows when each call came; all times are by its clock.
"""

from __future__ import annotations

import asyncio
import random
import signal
import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import PODS
from aibrix_operator.sandbox import processes
from bench.controller import objects
from bench.fleet import operators
from bench.fleet.operators import Operator
from bench.fleet.played import until
from bench.fleet.stage import Stage

KINDS = ("status", "route", "finalizer", "neighbour", "event")
"""What writes are told apart by: see ``watching``."""
_WAKE_WITHIN_S = 30.0
_ROUND_ENDS_S = 11.0
"""After it no card waits for its round any more, so that a pass that is provoked looks at what was touched alone."""
_TOUCHES = 20
_TOUCH_PAUSE_S = 0.3


@dataclass(frozen=True, slots=True)
class Load:
    """``claims`` on a fifth as many cards, and ``silent`` runtimes beside that never answer."""

    claims: int
    silent: int
    wakes: int
    idle_s: float
    deadline_s: float

    @property
    def title(self) -> str:
        return f"{self.claims:,}" + (f" + {self.silent} silent" if self.silent else "")


@dataclass(frozen=True, slots=True)
class Passes:
    """What passes cost that find nothing to do."""

    ms: float
    kib: float = 0.0
    """The most memory that one asks for at once."""


@dataclass(slots=True)
class Result:
    """The figures of one run."""

    claims: int
    silent: int
    active_s: float = 0.0
    """From the first claim's creation until all are Active and routed."""
    writes_per_claim: Mapping[str, float] = field(default_factory=dict)
    writes_per_transition: float = 0.0
    """Own status and route, per change of a claim's phase."""
    idle_passes: float = 0.0
    """By itself, in a minute."""
    idle_cpu_percent: float = 0.0
    idle_rss_mib: float = 0.0
    idle_writes: int = 0
    """To anything but the Lease."""
    passes: dict[str, Passes] = field(default_factory=dict)
    """``whole`` or ``some`` → idle passes that were provoked."""
    called_ms: tuple[float, ...] = ()
    """From sending the wake annotation until the runtime is called."""
    routed_ms: tuple[float, ...] = ()
    """From the engine's being ready until its route is seen."""
    taken_over_s: float = 0.0
    """From kill -9 until the next process has read every card and no step is pending."""


async def run(load: Load) -> Result:
    """Measure once; SystemExit when something does not come in time."""
    async with Stage.open(load.claims, load.silent) as stage:
        run = _Run(load, stage, Result(load.claims, load.silent))
        await run.measure()
        return run.result


@dataclass(frozen=True, slots=True)
class _Run:
    load: Load
    stage: Stage
    result: Result

    async def measure(self) -> None:
        stage = self.stage
        with ExitStack() as first:
            operator = first.enter_context(operators.running(stage.plane.kubeconfig, stage.folder, "operator"))
            await stage.until_read(set())
            await self._place()
            await self._stay_idle(operator)
            for scope in ("whole", "some"):
                await asyncio.sleep(_ROUND_ENDS_S)
                before = operator.passes(scope)
                await self._touch(scope)
                self.result.passes[scope] = Passes(operator.passes(scope).since(before).mean_s * 1000)
            await self._wake()
            killed_s, terms = time.monotonic(), set(stage.fleet.all_read_s)
            processes.signal_process(operator.process, signal.SIGKILL)
        with operators.running(stage.plane.kubeconfig, stage.folder, "second"):
            await self._take_over(killed_s, terms)
        with operators.running(stage.plane.kubeconfig, stage.folder, "traced", is_traced=True) as operator:
            await self._trace(operator)

    async def _place(self) -> None:
        stage, result, before = self.stage, self.result, self.stage.writes()
        result.active_s = await stage.place(self.load.deadline_s)
        await stage.settle()
        made, seen = stage.writes_since(before), stage.watcher.writes
        counts = {**seen, "event": sum(n for key, n in made.items() if key.endswith(" events"))}
        result.writes_per_claim = {kind: counts.get(kind, 0) / stage.claims for kind in KINDS}
        result.writes_per_transition = (seen["status"] + seen["route"]) / stage.watcher.transitions

    async def _stay_idle(self, operator: Operator) -> None:
        result, stage = self.result, self.stage
        writes, passes = stage.writes(), operator.passes("whole").count + operator.passes("some").count
        used, began_s = operator.used(), time.monotonic()
        await asyncio.sleep(self.load.idle_s)
        after, took_s = operator.used(), time.monotonic() - began_s
        later = operator.passes("whole").count + operator.passes("some").count
        result.idle_passes = (later - passes) / took_s * 60
        result.idle_cpu_percent = (after.cpu_s - used.cpu_s) / took_s * 100
        result.idle_rss_mib = after.rss_bytes / (1 << 20)
        result.idle_writes = sum(stage.writes_since(writes).values())

    async def _touch(self, scope: str) -> None:
        """Cause passes that find nothing to do: a label of a Pod may concern anybody, an annotation only itself."""
        kind = "labels" if scope == "whole" else "annotations"
        for number in range(_TOUCHES):
            touched = {"metadata": {kind: {"bench/touched": str(number)}}}
            await self.stage.cluster.patch(PODS, objects.NAMESPACE, "warm-0000", touched)
            await asyncio.sleep(_TOUCH_PAUSE_S)

    async def _wake(self) -> None:
        """Wake engines one by one while the rest is idle. Which ones, and the pauses between, repeat with every run."""
        rng, watcher, fleet = random.Random(self.load.claims), self.stage.watcher, self.stage.fleet
        claims = sorted(watcher.pods)
        called, routed = [], []
        for claim in [rng.choice(claims) for _ in range(self.load.wakes)]:
            pod = watcher.pods[claim]
            fleet.put_to_sleep(objects.pod_address(int(pod.removeprefix("warm-"))), claim)
            await until(f"{claim} sleeps", partial(self._sleeps, claim), _WAKE_WITHIN_S)
            await asyncio.sleep(0.5 + rng.random())  # what follows a sleep is over, and the round is met at any point
            for moments in (fleet.woken_s, fleet.ready_s):
                moments.pop(claim, None)
            asked = {names.wake_annotation(claim): datetime.now(UTC).isoformat(timespec="seconds")}
            asked_s = time.monotonic()
            await self.stage.cluster.patch_annotations(PODS, objects.NAMESPACE, pod, asked)
            await until(f"{claim} is routed", partial(self._is_routed_again, claim), _WAKE_WITHIN_S)
            called.append((fleet.woken_s[claim] - asked_s) * 1000)
            routed.append((watcher.routed_s[claim] - fleet.ready_s[claim]) * 1000)
        self.result.called_ms, self.result.routed_ms = tuple(called), tuple(routed)

    def _sleeps(self, claim: str) -> bool:
        return self.stage.watcher.phases[claim] == "Sleeping"

    def _is_routed_again(self, claim: str) -> bool:
        ready_s = self.stage.fleet.ready_s.get(claim)
        return ready_s is not None and self.stage.watcher.routed_s.get(claim, 0.0) >= ready_s

    async def _take_over(self, killed_s: float, terms: set[str]) -> None:
        """From the kill to the later of: the next process has read every card, and the last thing that it did."""
        stage = self.stage
        term = await stage.until_read(terms)
        await stage.settle()
        last_s = max(stage.fleet.all_read_s[term], stage.fleet.changed_s, stage.watcher.wrote_s)
        self.result.taken_over_s = last_s - killed_s

    async def _trace(self, operator: Operator) -> None:
        await self.stage.until_read(set(self.stage.fleet.all_read_s))
        await self.stage.settle()
        for scope, passes in self.result.passes.items():
            began_s = time.monotonic()
            await self._touch(scope)
            peaks = [each["peak_bytes"] for each in operator.traced_passes() if each["at_s"] > began_s]
            self.result.passes[scope] = Passes(passes.ms, statistics.median(peaks) / 1024)

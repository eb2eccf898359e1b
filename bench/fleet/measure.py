"""One run: claims are applied over a fresh API server, served, left idle, woken; then the operator is killed.

The benchmark's own process plays every runtime, so that it knows when each call came; all times are by its clock.
"""

from __future__ import annotations

import asyncio
import collections
import random
import signal
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from aibrix_operator.api import names
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import PODS
from aibrix_operator.sandbox import processes
from aibrix_operator.sandbox.control_plane import ControlPlane
from bench.controller import harness, objects, peers, usage
from bench.controller.objects import Fleet
from bench.fleet import operators
from bench.fleet.operators import Operator
from bench.fleet.played import PlayedFleet, until
from bench.fleet.watching import Watcher

CLAIMS_PER_CARD = peers.ROOMY.claims_per_pod
WRITERS = 8
# Idle engines are looked for each round, and none has been idle for long enough.
_POLICY = '{"lifecycle":{"sleepAfterSeconds":86400}}'
_QUIET_S = 3.0
"""Without a write or a changing call for so long, nothing is pending: steps follow each other in a fraction of it."""
_WAKE_WITHIN_S = 30.0


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


@dataclass(slots=True)
class Result:
    """The figures of one run."""

    claims: int
    silent: int
    active_s: float = 0.0
    """From the first claim's creation until all are Active and routed."""
    per_s: float = 0.0
    writes_per_claim: Mapping[str, float] = field(default_factory=dict)
    """Own status, route, finalizer, neighbours' status, Events."""
    writes_per_transition: float = 0.0
    """Own status and route, per change of a claim's phase."""
    idle_pass_ms: float = 0.0
    idle_passes_per_minute: float = 0.0
    idle_pass_kib: float = 0.0
    """The most memory that a pass asks for at once."""
    idle_cpu_percent: float = 0.0
    idle_rss_mib: float = 0.0
    idle_writes: int = 0
    """To anything but the Lease."""
    called_ms: tuple[float, ...] = ()
    """From sending the wake annotation until the runtime is called."""
    routed_ms: tuple[float, ...] = ()
    """From the engine's being ready until its route is seen."""
    taken_over_s: float = 0.0
    """From kill -9 until the next process has read every card and no step is pending."""


@dataclass(frozen=True, slots=True)
class _Run:
    """What a run's phases work with."""

    load: Load
    plane: ControlPlane
    cluster: Cluster
    folder: Path
    fleet: PlayedFleet
    watcher: Watcher
    result: Result


async def run(load: Load) -> Result:
    """Measure once; SystemExit when something does not come in time."""
    pods = -(-load.claims // CLAIMS_PER_CARD)
    with harness.api_server() as (plane, folder):
        fleet = PlayedFleet(pods, peers.ROOMY.usable_bytes, load.silent)
        await fleet.start()
        try:
            async with await Cluster.connect(plane.kubeconfig) as cluster:
                await harness.prepare(cluster)
                owner = await objects.create_pool(cluster, _POLICY, pods + load.silent)
                await objects.create_pods(cluster, pods + load.silent, owner)
                watcher = Watcher()
                async with watcher.following(cluster):
                    whole = _Run(load, plane, cluster, folder, fleet, watcher, Result(load.claims, load.silent))
                    await _measure(whole)
                    return whole.result
        finally:
            await fleet.stop()


async def _measure(run: _Run) -> None:
    with ExitStack() as first:
        operator = first.enter_context(operators.running(run.plane.kubeconfig, run.folder, "operator"))
        await until("the operator reads every card", lambda: bool(run.fleet.all_read_s), 60)
        await _place(run)
        await _settle(run)
        await _stay_idle(run, operator)
        await _wake(run)
        killed_s = time.monotonic()
        processes.signal_process(operator.process, signal.SIGKILL)
    with operators.running(run.plane.kubeconfig, run.folder, "second"):
        await _take_over(run, killed_s)
    with operators.running(run.plane.kubeconfig, run.folder, "traced", is_traced=True) as operator:
        await _trace(run, operator)


async def _place(run: _Run) -> None:
    load, result, watcher = run.load, run.result, run.watcher
    before, began_s = usage.writes(run.plane), time.monotonic()
    claims = (f"claim-{number:05d}" for number in range(load.claims))
    await objects.create_claims(run.cluster, claims, _fleet(), WRITERS)
    await until("every claim is served", lambda: watcher.served == load.claims, load.deadline_s)
    result.active_s = time.monotonic() - began_s
    result.per_s = load.claims / result.active_s
    await _settle(run)
    made = _writes_since(run.plane, before)
    seen = watcher.writes
    counts = {**seen, "event": sum(n for key, n in made.items() if key.endswith(" events"))}
    result.writes_per_claim = {key: counts.get(key, 0) / load.claims for key in KINDS}
    result.writes_per_transition = (seen["status"] + seen["route"]) / watcher.transitions


KINDS = ("status", "route", "finalizer", "neighbour", "event")


def _fleet() -> Fleet:
    return peers.ROOMY


def _writes_since(plane: ControlPlane, before: Mapping[str, int]) -> Mapping[str, int]:
    """All writes but the Lease's and the creation of claims."""
    made = collections.Counter(usage.writes(plane))
    made.subtract(before)
    return {k: n for k, n in made.items() if n and not k.endswith(" leases") and k != "POST modelclaims"}


async def _settle(run: _Run) -> None:
    """Return once nothing has been changed for a while, here or at the API server."""
    last: Mapping[str, int] = {}
    changed_s = time.monotonic()
    while time.monotonic() - max(changed_s, run.fleet.changed_s) < _QUIET_S:
        now = _writes_since(run.plane, {})
        if now != last:
            last, changed_s = now, time.monotonic()
        await asyncio.sleep(0.2)


async def _stay_idle(run: _Run, operator: Operator) -> None:
    result, load = run.result, run.load
    writes, passes, used, began_s = usage.writes(run.plane), operator.passes(), operator.used(), time.monotonic()
    await asyncio.sleep(load.idle_s)
    after, took_s = operator.used(), time.monotonic() - began_s
    made, later = _writes_since(run.plane, writes), operator.passes()
    count = later.count - passes.count
    result.idle_passes_per_minute = count / took_s * 60
    result.idle_pass_ms = (later.seconds - passes.seconds) / count * 1000 if count else 0.0
    result.idle_cpu_percent = (after.cpu_s - used.cpu_s) / took_s * 100
    result.idle_rss_mib = after.rss_bytes / (1 << 20)
    result.idle_writes = sum(made.values())


async def _wake(run: _Run) -> None:
    """Wake engines one by one while the rest is idle. Which ones, and the pauses between, repeat with every run."""
    rng = random.Random(run.load.claims)
    claims = sorted(run.watcher.pods)
    chosen = [rng.choice(claims) for _ in range(run.load.wakes)]
    called, routed = [], []
    for claim in chosen:
        address = objects.pod_address(int(run.watcher.pods[claim].removeprefix("warm-")))
        run.fleet.put_to_sleep(address, claim)
        await until(f"{claim} sleeps", lambda c=claim: run.watcher.phases[c] == "Sleeping", _WAKE_WITHIN_S)
        await asyncio.sleep(0.5 + rng.random())  # what follows a sleep is over, and the round is met at any point
        for moments in (run.fleet.woken_s, run.fleet.ready_s):
            moments.pop(claim, None)
        asked = {names.wake_annotation(claim): datetime.now(UTC).isoformat(timespec="seconds")}
        asked_s = time.monotonic()
        await run.cluster.patch_annotations(PODS, objects.NAMESPACE, run.watcher.pods[claim], asked)
        await until(f"{claim} is routed", lambda c=claim: _is_routed_again(run, c), _WAKE_WITHIN_S)
        called.append((run.fleet.woken_s[claim] - asked_s) * 1000)
        routed.append((run.watcher.routed_s[claim] - run.fleet.ready_s[claim]) * 1000)
    run.result.called_ms, run.result.routed_ms = tuple(called), tuple(routed)


def _is_routed_again(run: _Run, claim: str) -> bool:
    return claim in run.fleet.ready_s and run.watcher.routed_s.get(claim, 0.0) >= run.fleet.ready_s[claim]


async def _take_over(run: _Run, killed_s: float) -> None:
    """Time the next process from the kill: the first term in which every card was read, and the last thing it did."""
    terms = set(run.fleet.all_read_s)
    await until("the next operator reads every card", lambda: run.fleet.all_read_s.keys() > terms, 60)
    await _settle(run)
    (term,) = run.fleet.all_read_s.keys() - terms
    last_s = max(run.fleet.all_read_s[term], run.fleet.changed_s, run.watcher.wrote_s)
    run.result.taken_over_s = last_s - killed_s


async def _trace(run: _Run, operator: Operator) -> None:
    terms = set(run.fleet.all_read_s)
    await until("the traced operator reads every card", lambda: run.fleet.all_read_s.keys() > terms, 120)
    await _settle(run)
    settled_s = time.monotonic()
    await until("a pass when idle", lambda: bool(_passes_since(operator, settled_s)), 60)
    await asyncio.sleep(run.load.idle_s / 2)
    peaks = [each["peak_bytes"] for each in _passes_since(operator, settled_s)]
    run.result.idle_pass_kib = statistics.median(peaks) / 1024


def _passes_since(operator: Operator, moment_s: float) -> Sequence[Mapping[str, float]]:
    return [each for each in operator.traced_passes() if each["at_s"] > moment_s]

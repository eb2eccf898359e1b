"""One run: a fresh API server, claims that are there already, an operator, and claims that come while it works."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import MODEL_CLAIMS, Object
from aibrix_operator.cluster.watch import Change, Watch
from aibrix_operator.sandbox import processes
from aibrix_operator.sandbox.control_plane import ControlPlane
from aibrix_operator.sandbox.processes import ProcessId
from bench.controller import harness, objects, peers, runtimes, usage
from bench.controller.peers import Peer

_HARNESS_WRITES = {"POST modelclaims", "POST pods", "PATCH pods/status"}


@dataclass(frozen=True, slots=True)
class Load:
    """``present`` claims before the operator starts, ``created`` by ``writers`` afterwards."""

    present: int
    created: int
    writers: int
    workers: int
    """Concurrent reconciles of the peers that let one choose."""
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """What one run of one peer took; the claims of both phases count in the figures per object."""

    peer: str
    start_s: float
    """From starting the process until all present claims are done."""
    stream_s: float
    """From the first creation until all created claims are done."""
    present_per_s: float
    created_per_s: float
    cpu_ms_per_object: float
    peak_rss_mib: float
    writes_per_object: float
    """Without Leases, and without what the harness writes."""
    lease_writes: int
    writes: dict[str, int]


class _Progress:
    """Which claims are done, as a watch of ours sees it."""

    def __init__(self, is_done: Callable[[Object], bool]) -> None:
        self._is_done = is_done
        self._done: set[str] = set()
        self._wanted = 0
        self._reached = asyncio.Event()

    def changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        if new is None or not self._is_done(new):
            return
        self._done.add(new["metadata"]["name"])
        if len(self._done) >= self._wanted:
            self._reached.set()

    async def reached(self, wanted: int, deadline_s: float, operator: ProcessId) -> None:
        """Wait until ``wanted`` claims are done; SystemExit when the operator ends or ``deadline_s`` is over first."""
        self._wanted = wanted
        self._reached.clear()
        began = time.monotonic()
        while len(self._done) < wanted:
            state = f"{len(self._done)} of {wanted} claims were done after {time.monotonic() - began:.0f} s"
            if not processes.is_alive(operator):
                raise SystemExit(f"the operator ended when {state}")
            if time.monotonic() - began > deadline_s:
                raise SystemExit(f"only {state}")
            with contextlib.suppress(TimeoutError):  # look at the operator once a second
                await asyncio.wait_for(self._reached.wait(), 1)


def _only_status(claim: Object) -> Object:
    metadata = claim["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")}
    return {"metadata": kept, "status": claim.get("status", {})}


async def run(peer: Peer, load: Load) -> Result:
    """Measure ``peer`` once; SystemExit with the end of its log when it does not finish."""
    with harness.api_server() as (plane, folder):
        command = list(peer.command(plane.kubeconfig))  # built now, before the clock runs
        async with await Cluster.connect(plane.kubeconfig) as cluster:
            await _prepare(cluster, peer, load)
            async with _playing_runtimes(peer, load, folder):
                return await _measure(cluster, plane, peer, command, load, folder)


async def _prepare(cluster: Cluster, peer: Peer, load: Load) -> None:
    await harness.prepare(cluster)
    await objects.create_pods(cluster, _pods(peer, load))
    present = (f"present-{number:05d}" for number in range(load.present))
    await objects.create_claims(cluster, present, peer.fleet, load.writers)


def _pods(peer: Peer, load: Load) -> int:
    """Enough for all claims of the run, none for peers that look at no Pod."""
    if not peer.fleet.claims_per_pod:
        return 0
    return -(-(load.present + load.created) // peer.fleet.claims_per_pod)


@contextlib.asynccontextmanager
async def _playing_runtimes(peer: Peer, load: Load, folder: Path) -> AsyncIterator[None]:
    pods = _pods(peer, load)
    if not pods:
        yield
        return
    log = folder / "runtimes.log"
    arguments = [str(pods), str(peer.fleet.usable_bytes)]
    environment = peers.environment(folder / "kubeconfig", load.workers)
    with harness.process(peers.python_module(runtimes.__name__, *arguments), log, environment):
        async with asyncio.timeout(30):
            while "ready" not in log.read_text():  # noqa: ASYNC110  # another process, which tells by its output only
                await asyncio.sleep(0.05)
        yield


async def _measure(
    cluster: Cluster, plane: ControlPlane, peer: Peer, command: list[str], load: Load, folder: Path
) -> Result:
    progress = _Progress(peer.is_done)
    watch = Watch(cluster, MODEL_CLAIMS, namespace=objects.NAMESPACE, on_event=progress.changed, slim=_only_status)
    watching = asyncio.create_task(watch.run())
    try:
        await watch.synced.wait()
        before = usage.writes(plane)
        began = time.monotonic()
        environment = peers.environment(plane.kubeconfig, load.workers)
        with harness.process(command, folder / "operator.log", environment) as operator:
            await progress.reached(load.present, load.deadline_s, operator)
            start_s = time.monotonic() - began
            began = time.monotonic()
            created = (f"created-{number:05d}" for number in range(load.created))
            await objects.create_claims(cluster, created, peer.fleet, load.writers)
            await progress.reached(load.present + load.created, load.deadline_s, operator)
            stream_s = time.monotonic() - began
            used = usage.of_process(operator.pid)
        after = usage.writes(plane)
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    made = collections.Counter(after)
    made.subtract(before)
    writes = {key: count for key, count in made.items() if count and key not in _HARNESS_WRITES}
    lease_writes = sum(writes.pop(key) for key in list(writes) if key.endswith(" leases"))
    claims = load.present + load.created
    return Result(
        peer=peer.name,
        start_s=round(start_s, 3),
        stream_s=round(stream_s, 3),
        present_per_s=round(load.present / start_s, 1),
        created_per_s=round(load.created / stream_s, 1),
        cpu_ms_per_object=round(used.cpu_s * 1000 / claims, 3),
        peak_rss_mib=round(used.peak_rss_bytes / (1 << 20), 1),
        writes_per_object=round(sum(writes.values()) / claims, 3),
        lease_writes=lease_writes,
        writes=dict(sorted(writes.items())),
    )

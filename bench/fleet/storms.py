"""``python -m bench.fleet.storms``: StormServices beside the same number of plain Deployments, in one run.

A real API server with its controllers and scheduler, and nodes that this process plays: a Pod is ready a moment after
it is bound, and gone a moment after it is deleted. First the Deployments are made, updated and left idle, then the
StormServices, by the same steps and the same clock.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import copy
import dataclasses
import json
import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import rich
import typer
import uvloop
from rich.table import Table

from aibrix_operator.api import orchestration
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import DEPLOYMENTS, PODS, Object, Resource
from aibrix_operator.cluster.watch import Change, Watch
from aibrix_operator.sandbox import binaries, control_plane, crds
from aibrix_operator.sandbox.control_plane import ControlPlane
from aibrix_operator.stormservice.resources import STORMSERVICES
from bench.controller import usage
from bench.fleet import operators
from bench.fleet.fake_nodes import FakeNodes

NAMESPACE = "bench"
NAMESPACES = Resource("", "v1", "namespaces")
ACCOUNTS = Resource("", "v1", "serviceaccounts")
_PODS_EACH = 8
_NODES = 20
_WRITERS = 8
_QUIET_S = 3.0
# What the nodes, the scheduler and the election write, whoever owns the Pods; Events may be dropped and are told apart.
_OTHERS = (
    "/binding",
    "pods/status",
    "leases",
    " events",
    " nodes",
    "nodes/status",
    "serviceaccounts",
    "endpointslices",
)


@dataclass(frozen=True, slots=True)
class Contender:
    """One kind of object that owns Pods."""

    name: str
    resource: Resource
    body: Callable[[str], Object]
    """Name → a new object."""
    change: Callable[[Object], Object]
    """An object → the patch that gives it another image."""
    is_done: Callable[[Object], bool]
    """All its Pods are of its present template and ready, and no other is left."""


@dataclass(slots=True)
class Figures:
    """Of one contender."""

    name: str
    count: int
    pods: int
    ready_s: float = 0.0
    updated_s: float = 0.0
    ready_writes_per_pod: float = 0.0
    updated_writes_per_pod: float = 0.0
    events_per_pod: float = 0.0
    idle_writes: int = 0
    operator_cpu_s: float = 0.0
    """Of the operator's process, over all of it."""


def _template(image: str, labels: Mapping[str, str]) -> Object:
    return {"metadata": {"labels": dict(labels)}, "spec": {"containers": [{"name": "engine", "image": image}]}}


def _deployment(name: str) -> Object:
    labels = {"app": name}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    spec = {"replicas": _PODS_EACH, "selector": {"matchLabels": labels}, "strategy": strategy}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {**spec, "template": _template("engine:1", labels)},
    }


def _deployment_changed(_: Object) -> Object:
    return {"spec": {"template": {"spec": {"containers": [{"name": "engine", "image": "engine:2"}]}}}}


def _deployment_done(obj: Object) -> bool:
    status = obj.get("status", {})
    is_seen = status.get("observedGeneration", 0) >= obj["metadata"]["generation"]
    counts = [status.get(k, 0) for k in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")]
    return is_seen and counts == [_PODS_EACH] * 4


def _storm(name: str) -> Object:
    labels = {"app": name}
    half = _PODS_EACH // 2
    roles = [{"name": n, "replicas": half, "template": _template("engine:1", labels)} for n in ("prefill", "decode")]
    spec = {"mode": "Pooled", "selector": {"matchLabels": labels}}
    template = {"metadata": {"labels": labels}, "spec": {"roles": roles, "updateStrategy": "Parallel"}}
    return {
        "apiVersion": orchestration.API_VERSION,
        "kind": "StormService",
        "metadata": {"name": name},
        "spec": {**spec, "template": template},
    }


def _storm_changed(obj: Object) -> Object:
    template = copy.deepcopy(obj["spec"]["template"])
    for role in template["spec"]["roles"]:
        role["template"]["spec"]["containers"][0]["image"] = "engine:2"
    return {"spec": {"template": template}}


def _storm_done(obj: Object) -> bool:
    status = obj.get("status", {})
    is_seen = status.get("observedGeneration", 0) >= obj["metadata"]["generation"]
    has_arrived = status.get("currentRevision") == status.get("updateRevision")
    return is_seen and has_arrived and status.get("updatedReadyReplicas") == status.get("replicas") == 1


CONTENDERS = (
    Contender("Deployment", DEPLOYMENTS, _deployment, _deployment_changed, _deployment_done),
    Contender("StormService", STORMSERVICES, _storm, _storm_changed, _storm_done),
)


def main(
    count: Annotated[int, typer.Option(help="Objects of each kind, of 8 Pods each.")] = 100,
    idle_s: Annotated[float, typer.Option(help="How long the idle cluster is watched.")] = 30,
    deadline_s: Annotated[float, typer.Option(help="The longest that a phase may take.")] = 600,
    output: Annotated[Path, typer.Option(help="The JSON file for the raw figures.")] = Path("bench-storms.json"),
) -> None:
    """Measure both kinds in one run: time to ready, a full rolling update, writes, and idleness."""
    found = uvloop.run(_measure(count, idle_s, deadline_s))
    machine = {"processors": os.cpu_count(), "kernel": platform.release(), "load_average": os.getloadavg()}
    raw = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "figures": [dataclasses.asdict(f) for f in found],
    }
    output.write_text(json.dumps(raw, indent=1) + "\n")
    table = Table(title=f"{count} of {_PODS_EACH} Pods")
    table.add_column("")
    for figures in found:
        table.add_column(figures.name, justify="right")
    for title, show in _ROWS:
        table.add_row(title, *(show(f) for f in found))
    rich.print(table)
    rich.print(f"raw figures: {output}")


_ROWS: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("made → all ready, s", lambda f: f"{f.ready_s:.1f}"),
    ("full rolling update, s", lambda f: f"{f.updated_s:.1f}"),
    ("writes/Pod until ready", lambda f: f"{f.ready_writes_per_pod:.2f}"),
    ("writes/Pod of the update", lambda f: f"{f.updated_writes_per_pod:.2f}"),
    ("Events/Pod of both", lambda f: f"{f.events_per_pod:.2f}"),
    ("writes when idle", lambda f: f"{f.idle_writes}"),
    ("CPU of the operator, s", lambda f: f"{f.operator_cpu_s:.1f}"),
)


async def _measure(count: int, idle_s: float, deadline_s: float) -> list[Figures]:
    wanted = (binaries.ETCD, binaries.API_SERVER, binaries.CONTROLLER_MANAGER, binaries.SCHEDULER)
    with tempfile.TemporaryDirectory(prefix="aibrix-bench-") as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        programs = binaries.find_binaries(wanted, report=print)
        plane = control_plane.start_control_plane(folder, programs, with_controllers=True, dies_with_parent=True)
        stack.callback(plane.stop)
        async with await Cluster.connect(plane.kubeconfig) as cluster:
            await crds.apply_crds(cluster)
            await cluster.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})
            await _until(lambda: _has_account(cluster), 60)
            operator = stack.enter_context(operators.running(plane.kubeconfig, folder, "operator"))
            async with FakeNodes(cluster, _NODES).running():
                runs = [_Run(plane, cluster, c, count, deadline_s, operator) for c in CONTENDERS]
                return [await run.measure(idle_s) for run in runs]


async def _has_account(cluster: Cluster) -> bool:
    try:
        await cluster.get(ACCOUNTS, NAMESPACE, "default")
    except errors.NotFound:
        return False
    return True


async def _until(holds: Callable[[], Awaitable[bool]], within_s: float) -> None:
    end_s = time.monotonic() + within_s
    while not await holds():
        if time.monotonic() > end_s:
            raise SystemExit(f"not within {within_s:.0f} s")
        await asyncio.sleep(0.05)


class _Run:
    """One contender on a running cluster."""

    def __init__(
        self,
        plane: ControlPlane,
        cluster: Cluster,
        contender: Contender,
        count: int,
        deadline_s: float,
        operator: operators.Operator,
    ) -> None:
        self._plane, self._cluster, self._contender = plane, cluster, contender
        self._deadline_s, self._operator = deadline_s, operator
        self._names = [f"{contender.resource.plural[:-1]}-{number:03d}" for number in range(count)]
        self._figures = Figures(contender.name, count, count * _PODS_EACH)
        self._done: dict[str, bool] = {}
        self._changed_s = 0.0

    async def measure(self, idle_s: float) -> Figures:
        watch = Watch(self._cluster, self._contender.resource, namespace=NAMESPACE, on_event=self._look)
        pods = Watch(self._cluster, PODS, namespace=NAMESPACE)
        following = [asyncio.create_task(watch.run()), asyncio.create_task(pods.run())]
        used = self._operator.used()
        try:
            await watch.synced.wait()
            figures, all_pods = self._figures, self._figures.pods
            before = self._writes()
            figures.ready_s = await self._timed(self._make)
            await self._settle()
            ready = self._writes()
            figures.ready_writes_per_pod = self._between(before, ready) / all_pods
            figures.updated_s = await self._timed(self._update)
            await self._settle()
            updated = self._writes()
            figures.updated_writes_per_pod = self._between(ready, updated) / all_pods
            figures.events_per_pod = self._between(before, updated, events=True) / all_pods
            await asyncio.sleep(idle_s)
            figures.idle_writes = self._between(updated, self._writes())
            figures.operator_cpu_s = self._operator.used().cpu_s - used.cpu_s
            return figures
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)

    def _look(self, _: Change, old: Object | None, new: Object | None) -> None:
        self._changed_s = time.monotonic()
        if new is not None:
            self._done[new["metadata"]["name"]] = self._contender.is_done(new)

    async def _timed(self, act: Callable[[str], Awaitable[None]]) -> float:
        """Do it to all, some at a time; seconds until all are done."""
        began_s = time.monotonic()
        self._done = dict.fromkeys(self._names, False)
        slots = asyncio.Semaphore(_WRITERS)

        async def one(name: str) -> None:
            async with slots:
                await act(name)

        await asyncio.gather(*(one(name) for name in self._names))
        await _until(self._are_done, self._deadline_s)
        return time.monotonic() - began_s

    async def _are_done(self) -> bool:
        return all(self._done[name] for name in self._names)

    async def _make(self, name: str) -> None:
        await self._cluster.create(self._contender.resource, NAMESPACE, self._contender.body(name))

    async def _update(self, name: str) -> None:
        present = await self._cluster.get(self._contender.resource, NAMESPACE, name)
        self._done[name] = False
        await self._cluster.patch(self._contender.resource, NAMESPACE, name, self._contender.change(present))

    async def _settle(self) -> None:
        """Statuses that follow are written by now."""
        while time.monotonic() - self._changed_s < _QUIET_S:  # noqa: ASYNC110  # quiet is when nothing happens
            await asyncio.sleep(0.2)

    def _writes(self) -> Mapping[str, int]:
        return usage.writes(self._plane)

    def _between(self, before: Mapping[str, int], after: Mapping[str, int], *, events: bool = False) -> int:
        """Writes of whoever owns the Pods, or Events; what this process wrote itself is taken off."""
        made = collections.Counter(after)
        made.subtract(before)
        if events:
            return sum(n for key, n in made.items() if key.endswith(" events"))
        kept = sum(n for key, n in made.items() if n and not any(other in key for other in _OTHERS))
        own = len(self._names) if kept else 0  # each was made, or changed, by this process
        # Each Pod that is gone was deleted by its owner, and then by its node.
        return kept - own - made.get("DELETE pods", 0) // 2


if __name__ == "__main__":
    typer.run(main)

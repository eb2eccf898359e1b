"""What ModelAdapters cost: 200 adapters on all of 20 Pods, and the same with one replica each.

``python -m bench.fleet.adapters``, as root: Pods have addresses that EndpointSlices take, in a network of this
process's own. One process answers for all engines, at once, so that only the operator is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import rich
import typer
from aiohttp import web
from rich.table import Table

from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import MODEL_ADAPTERS, PODS
from aibrix_operator.sandbox import crds
from aibrix_operator.sandbox.own_network import own_network, why_not
from bench.controller import harness, usage
from bench.fleet import operators

NAMESPACE = "default"
_SELECTOR = {"matchLabels": {"app": "base"}}
_WRITERS = 8
_DEADLINE_S = 600.0
_OURS = ("modeladapters", "services", "endpointslices", "events")


@dataclass(frozen=True, slots=True)
class Result:
    """One run."""

    adapters: int
    pods: int
    replicas: int | None
    loaded_s: float
    """From the first creation until the last adapter is Running on all that are wanted."""
    loads: int
    writes_per_adapter: Mapping[str, float]
    idle_writes: int
    idle_lists_per_minute: float
    idle_cpu_percent: float
    rss_mib: float


class PlayedEngines:
    """All engines, told apart by the address that was called. They answer at once."""

    def __init__(self) -> None:
        self.models: dict[str, set[str]] = {}
        self.loads = self.lists = 0
        self._runner = web.ServerRunner(web.Server(self._answer))

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "0.0.0.0", 8000, backlog=4096).start()

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None, "it was just asked"
        models = self.models.setdefault(request.transport.get_extra_info("sockname")[0], set())
        if request.method == "GET":
            self.lists += 1
            return web.json_response({"data": [{"id": name} for name in sorted(models)]})
        name = json.loads(await request.read())["lora_name"]
        if "unload" in request.path:
            models.discard(name)
        else:
            self.loads += 1
            models.add(name)
        return web.Response(text="Success")


async def _make_pods(cluster: Cluster, count: int) -> None:
    since = rfc3339(datetime.now(UTC) - timedelta(minutes=1))
    for number in range(count):
        name = f"base-{number:03}"
        body = {
            "metadata": {"name": name, "labels": {"app": "base"}},
            "spec": {"containers": [{"name": "engine", "image": "none"}]},
        }
        made = await cluster.create(PODS, NAMESPACE, body)
        ip = f"10.77.{number // 250}.{number % 250 + 1}"
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
        status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions}
        await cluster.patch_status(PODS, NAMESPACE, name, status, made["metadata"]["resourceVersion"])


async def _make_adapters(cluster: Cluster, count: int, replicas: int | None) -> None:
    slots = asyncio.Semaphore(_WRITERS)

    async def make(number: int) -> None:
        spec: dict[str, Any] = {"podSelector": _SELECTOR, "artifactURL": "huggingface://org/adapter"}
        spec |= {"replicas": replicas} if replicas is not None else {}
        metadata = {"name": f"adapter-{number:04}"}
        body = {"apiVersion": "model.aibrix.ai/v1alpha1", "kind": "ModelAdapter", "metadata": metadata, "spec": spec}
        async with slots:
            await cluster.create(MODEL_ADAPTERS, NAMESPACE, body)

    await asyncio.gather(*map(make, range(count)))


async def _until_loaded(cluster: Cluster, count: int, wanted: int) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while True:
            found, _ = await cluster.list_all(MODEL_ADAPTERS, NAMESPACE)
            statuses = [adapter.get("status") or {} for adapter in found]
            if sum(s.get("phase") == "Running" and s["readyReplicas"] == wanted for s in statuses) == count:
                return
            await asyncio.sleep(0.25)


async def _until_leading(address: str) -> None:
    def leads() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/readyz", timeout=2) as answer:
                return bool(json.loads(answer.read())["leader"])
        except OSError:
            return False

    async with asyncio.timeout(60):
        while not await asyncio.to_thread(leads):  # noqa: ASYNC110  # another process leads, and has no event
            await asyncio.sleep(0.1)


def _written(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Of what adapters are made of, since ``before``; what this program writes itself is left out."""
    found = {key: count - before.get(key, 0) for key, count in after.items()}
    ours = {key: count for key, count in found.items() if count and key.split()[1].split("/")[0] in _OURS}
    ours.pop("POST modeladapters", None)
    return ours


async def run(adapters: int, pods: int, replicas: int | None, idle_s: float) -> Result:
    """One fleet from nothing to idle."""
    with harness.api_server() as (plane, folder):
        engines = PlayedEngines()
        await engines.start()
        async with await Cluster.connect(plane.kubeconfig) as cluster:
            await crds.apply_crds(cluster)
            await _make_pods(cluster, pods)
            with operators.running(plane.kubeconfig, folder, "operator") as operator:
                await _until_leading(operator.address)
                before, began_s = usage.writes(plane), time.monotonic()
                await _make_adapters(cluster, adapters, replicas)
                await _until_loaded(cluster, adapters, min(replicas or pods, pods))
                loaded_s = time.monotonic() - began_s
                # Events come last, one at a time.
                quiet = usage.writes(plane)
                while True:
                    await asyncio.sleep(5)
                    now = usage.writes(plane)
                    if not _written(now, quiet):
                        break
                    quiet = now
                written = _written(quiet, before)
                lists, used = engines.lists, operator.used()
                await asyncio.sleep(idle_s)
                after = operator.used()
                idle = _written(usage.writes(plane), quiet)
        await engines.stop()
    return Result(
        adapters=adapters,
        pods=pods,
        replicas=replicas,
        loaded_s=loaded_s,
        loads=engines.loads,
        writes_per_adapter={key: count / adapters for key, count in sorted(written.items())},
        idle_writes=sum(idle.values()),
        idle_lists_per_minute=(engines.lists - lists) * 60 / idle_s,
        idle_cpu_percent=100 * (after.cpu_s - used.cpu_s) / idle_s,
        rss_mib=after.rss_bytes / 2**20,
    )


def _table(results: list[Result]) -> Table:
    table = Table(title=f"{results[0].adapters} ModelAdapters, {results[0].pods} Pods")
    table.add_column("")
    for result in results:
        table.add_column("on all Pods" if result.replicas is None else f"replicas {result.replicas}", justify="right")
    rows = {
        "first created → all Running, s": lambda r: f"{r.loaded_s:.1f}",
        "loads": lambda r: str(r.loads),
        "writes/adapter without Events": lambda r: f"{_sum(r, events=False):.2f}",
        "Events written/adapter": lambda r: f"{_sum(r, events=True):.2f}",
        "writes when idle": lambda r: str(r.idle_writes),
        "lists/minute when idle": lambda r: f"{r.idle_lists_per_minute:.0f}",
        "CPU when idle, % of a core": lambda r: f"{r.idle_cpu_percent:.1f}",
        "memory when idle, MiB": lambda r: f"{r.rss_mib:.0f}",
    }
    for title, show in rows.items():
        table.add_row(title, *(show(result) for result in results))
    return table


def _sum(result: Result, *, events: bool) -> float:
    return sum(count for key, count in result.writes_per_adapter.items() if (" events" in key) == events)


def main(
    adapters: Annotated[int, typer.Option(help="ModelAdapters of a run.")] = 200,
    pods: Annotated[int, typer.Option(help="Pods that all of them select.")] = 20,
    idle_s: Annotated[float, typer.Option(help="How long the idle operator is measured.")] = 60,
    output: Annotated[Path, typer.Option(help="The JSON file for the raw figures.")] = Path("bench-adapters.json"),
) -> None:
    """Measure adapters on all Pods, and on one each."""
    if reason := why_not():
        print(f"SKIPPED: ModelAdapters are not measured, since {reason}", file=sys.stderr)
        return
    results = []
    for replicas in (None, 1):
        with own_network():
            results.append(asyncio.run(run(adapters, pods, replicas, idle_s)))
        output.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    rich.print(_table(results))
    rich.print(f"raw figures: {output}")


if __name__ == "__main__":
    typer.run(main)

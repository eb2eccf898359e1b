"""What a run plays on: a sandbox with claims, seen through the API server and through procfs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from aibrix_operator.api import names
from aibrix_operator.api.quantity import figure_bytes
from aibrix_operator.api.route import Route, RouteError, RouteState, parse_route
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import LEASES, MODEL_CLAIMS, PODS, Object
from aibrix_operator.cluster.watch import Watch
from aibrix_operator.sandbox import connection, operators, pool, processes, up
from aibrix_operator.sandbox.pod_folder import PodFolder
from aibrix_operator.sandbox.processes import ProcessId
from aibrix_operator.sandbox.state import Sandbox

GIB = 1 << 30
CARD = "24Gi"
OPERATORS = 2
FOOTPRINT, FLOOR = "6Gi", "1Gi"
SEATS_PER_CARD = 3
LEASE = ("default", "aibrix-operator")
_ENGINE = {"boot_seconds": 0.5, "footprint_bytes": 5 * GIB, "tokens_per_second": 40.0}
_PROBE_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One process of the operator."""

    process: ProcessId
    address: str


@dataclass(frozen=True, slots=True)
class Target:
    """Where a claim's requests go now."""

    pod: str
    pod_uid: str
    address: str
    route: Route


class Stage:
    """The live view. Within ``open`` its caches follow the API server."""

    def __init__(self, sandbox: Sandbox, cluster: Cluster, session: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.cluster = cluster
        self.session = session
        self._claims = Watch(cluster, MODEL_CLAIMS, namespace=pool.NAMESPACE)
        self._pods = Watch(cluster, PODS, namespace=pool.NAMESPACE, label_selector=names.POOL_LABEL)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, sandbox: Sandbox) -> AsyncIterator[Stage]:
        """Follows the sandbox as long as the block."""
        async with (
            await connection.connect(sandbox.kubeconfig) as cluster,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session,
        ):
            stage = cls(sandbox, cluster, session)
            tasks = [asyncio.create_task(watch.run()) for watch in (stage._claims, stage._pods)]
            try:
                await stage._claims.synced.wait()
                await stage._pods.synced.wait()
                yield stage
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    # --- claims and Pods

    def claims(self) -> list[Object]:
        return list(self._claims.objects.values())

    def pods(self) -> list[Object]:
        """The pool's Pods that are not on their way out."""
        return [pod for pod in self._pods.objects.values() if "deletionTimestamp" not in pod["metadata"]]

    def ready_pods(self) -> list[Object]:
        return [pod for pod in self.pods() if _is_ready(pod)]

    def target(self, claim: str) -> Target | None:
        """Where the claim's route leads; None while no Pod carries an active one."""
        key = names.route_annotation(claim)
        for pod in self.pods():
            text = pod["metadata"].get("annotations", {}).get(key)
            if text is None:
                continue
            with contextlib.suppress(RouteError):  # another version's; readers pass such a route over
                route = parse_route(text)
                if route.state is RouteState.ACTIVE:
                    metadata = pod["metadata"]
                    return Target(metadata["name"], metadata["uid"], pod["status"]["podIP"], route)
        return None

    def folder(self, pod_uid: str) -> PodFolder:
        return PodFolder(self.sandbox.pods / pod_uid)

    def engines(self, pod_uid: str) -> Mapping[str, int]:
        """Model → process of its engine, by the sidecar's registry; empty while there is none."""
        try:
            entries = json.loads(self.folder(pod_uid).registry.read_bytes())["engines"]
        except (FileNotFoundError, ValueError):
            return {}
        return {e["model_name"]: e["pid"] for e in entries if e.get("pid")}

    async def snapshot(self, pod: Object) -> Mapping[str, Any] | None:
        """What the Pod's sidecar says of its card and engines; None when it does not answer."""
        url = f"http://{pod['status'].get('podIP', '')}:{names.RUNTIME_PORT}/v1/runtime/snapshot"
        return await self._get(url)

    # --- operators

    def replicas(self) -> list[Replica]:
        """The operator's processes below the supervisors that play its Deployment."""
        return list(self._replicas())

    def _replicas(self) -> Iterator[Replica]:
        table = self.sandbox.table.read()
        for number in range(1, OPERATORS + 1):
            supervisor = table[operators.operator_name(number)].pid
            # A process may end between being listed and being read.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                    process = processes.identify(int(pid))
                    if process is not None and "--liveness" in words:  # else it has only been forked
                        yield Replica(process, urlsplit(words[words.index("--liveness") + 1]).netloc)

    async def probe(self, replica: Replica) -> Mapping[str, Any]:
        """What its readiness probe says; empty while it does not answer."""
        return await self._get(f"http://{replica.address}/readyz") or {}

    async def leads(self, replica: Replica) -> bool:
        return bool((await self.probe(replica)).get("leader"))

    async def violations(self, replica: Replica) -> float:
        """Broken laws of the ledger that this process has counted itself."""
        try:
            async with self.session.get(f"http://{replica.address}/metrics", timeout=_TIMEOUT) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0.0
        lines = [line for line in text.splitlines() if line.startswith("aibrix_modelclaim_ledger_violations_total")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def lease(self) -> Object:
        return await self.cluster.get(LEASES, *LEASE)

    async def _get(self, url: str) -> Mapping[str, Any] | None:
        try:
            async with self.session.get(url, timeout=_TIMEOUT) as answer:
                body: Mapping[str, Any] = await answer.json()
                return body
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None


_TIMEOUT = aiohttp.ClientTimeout(total=_PROBE_WITHIN_S)


def _is_ready(pod: Object) -> bool:
    found = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found)


def claim_names(cards: int) -> list[str]:
    """As many claims as fit on all cards but one."""
    return [f"model-{number}" for number in range((cards - 1) * SEATS_PER_CARD)]


def claim_body(name: str) -> Object:
    return {
        "apiVersion": MODEL_CLAIMS.api_version,
        "kind": "ModelClaim",
        "metadata": {"name": name},
        "spec": {
            "podSelector": {"matchLabels": {names.POOL_LABEL: pool.POOL}},
            "artifactURL": f"huggingface://example/{name}",
            "perGPU": {"maximumFootprint": FOOTPRINT, "kvFloor": FLOOR},
        },
    }


def footprint_bytes() -> int:
    return figure_bytes("maximumFootprint", FOOTPRINT)


def start(name: str, cards: int, profiles: Path) -> Sandbox:
    """A sandbox of so many cards, with two replicas of the operator and engines that are up at once."""
    profiles.write_text(json.dumps({"default": _ENGINE}))
    os.environ["AIBRIX_SIM_PROFILES"] = str(profiles)
    return up.up(name, up.Options(cards=(CARD,) * cards, operators=OPERATORS), report=print)

"""What the API server says while a run goes on: which claims are served, and what each write was for."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.api.route import RouteState, parse_route
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS, Object
from aibrix_operator.cluster.watch import Change, Watch
from aibrix_operator.modelclaim.parse import slim_pod
from bench.controller import objects


class Watcher:
    """Follows claims and Pods of the benchmark's namespace."""

    def __init__(self) -> None:
        self.phases: dict[str, str] = {}
        """Claim → phase, as published."""
        self.pods: dict[str, str] = {}
        """Claim → the Pod that its first instance is recorded on."""
        self.routed_s: dict[str, float] = {}
        """Claim → when it was last put on an active route; not there while it has none."""
        self.writes: Counter[str] = Counter()
        """status, neighbour, finalizer, route → writes seen."""
        self.transitions = 0
        """Changes of a claim's phase."""
        self.wrote_s = 0.0
        """When the last write of a status or a route was seen."""

    @property
    def served(self) -> int:
        """Claims that are Active and routed."""
        return sum(phase == "Active" and claim in self.routed_s for claim, phase in self.phases.items())

    @contextlib.asynccontextmanager
    async def following(self, cluster: Cluster) -> AsyncIterator[None]:
        """Watches as long as the block."""
        watches = [
            Watch(cluster, MODEL_CLAIMS, namespace=objects.NAMESPACE, on_event=self._claim_changed, slim=_slim_claim),
            Watch(cluster, PODS, namespace=objects.NAMESPACE, on_event=self._pod_changed, slim=slim_pod),
        ]
        tasks = [asyncio.create_task(watch.run()) for watch in watches]
        try:
            for watch in watches:
                await watch.synced.wait()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _claim_changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        if new is None:
            return
        name, status = new["metadata"]["name"], new["status"]
        before = {} if old is None else old["status"]
        phase = status.get("phase", "")
        if phase != before.get("phase", ""):
            self.transitions += 1
        self.phases[name] = phase
        if status.get("instances"):
            self.pods[name] = status["instances"][0]["pod"]
        if old is None:
            return
        if status == before:
            self.writes["finalizer"] += old["metadata"]["finalizers"] != new["metadata"]["finalizers"]
            return
        self.wrote_s = time.monotonic()
        self.writes["neighbour" if _without_records(status) == _without_records(before) else "status"] += 1

    def _pod_changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        after = {} if new is None else new["metadata"]["annotations"]
        before = {} if old is None else old["metadata"]["annotations"]
        now_s = time.monotonic()
        changed = {key for key in (*after, *before) if after.get(key) != before.get(key)}
        routes = [key for key in changed if key.startswith(names.ROUTE_PREFIX)]
        self.writes["route"] += bool(routes) and old is not None
        for key in routes:
            claim = key.removeprefix(names.ROUTE_PREFIX)
            self.wrote_s = now_s
            self.routed_s.pop(claim, None)
            if key in after and parse_route(after[key]).state is RouteState.ACTIVE:
                self.routed_s[claim] = now_s


def _slim_claim(claim: Object) -> Object:
    metadata = claim["metadata"]
    kept: dict[str, Any] = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")}
    kept["finalizers"] = metadata.get("finalizers", [])
    return {"metadata": kept, "status": claim.get("status", {})}


def _without_records(status: Object) -> Object:
    """The status but for ``kvLimitBytes``, which follows the division of the card that the claim is on."""
    if status.get("phase") != "Active":
        return status
    instances = [{k: v for k, v in instance.items() if k != "kvLimitBytes"} for instance in status["instances"]]
    return {**status, "instances": instances}

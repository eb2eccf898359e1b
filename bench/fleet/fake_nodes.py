"""Nodes that nobody runs: registered, kept alive, and Pods that are bound to them turn ready and go.

Unlike the sandbox's agent it starts no process, so it costs nothing per Pod, and a test decides what becomes of each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from aibrix_operator.api import orchestration
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import LEASES, PODS, Object, Resource, key_of
from aibrix_operator.cluster.watch import Change, Watch

NODES = Resource("", "v1", "nodes")
_HEARTBEAT_S = 10.0
_NOW = "2026-01-01T00:00:00Z"


class FakeNodes:
    """``count`` nodes and all of their Pods."""

    def __init__(self, cluster: Cluster, count: int, *, ready_s: float = 0.2, grace_s: float = 0.2) -> None:
        self.cluster = cluster
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self.ready_s, self.grace_s = ready_s, grace_s
        self.is_good: Callable[[Object], bool] = lambda pod: True
        self.ids: Callable[[str], str] = lambda image: f"sha256:{image}"
        self.pods = Watch(cluster, PODS, on_event=self._changed)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._shown: dict[str, Object] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[FakeNodes]:
        """As long as the block."""
        for name in self.names:
            await self._register(name)
        following = [asyncio.create_task(self.pods.run()), asyncio.create_task(self._beat())]
        await self.pods.synced.wait()
        try:
            yield self
        finally:
            for task in following:
                task.cancel()
            # What plays a Pod ends by itself: a call that is cut while it connects leaves its socket open.
            await asyncio.gather(*following, *self._tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _register(self, name: str) -> None:
        capacity = {"cpu": "1000", "memory": "2Ti", "pods": "5000"}
        ready = {"type": "Ready", "status": "True", "reason": "Fake", "message": ""}
        times = {"lastHeartbeatTime": _NOW, "lastTransitionTime": _NOW}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": [{**ready, **times}]},
        }
        await self.cluster.create(NODES, None, body)
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}}
        await self._until_made(LEASES, "kube-node-lease", lease)

    async def _until_made(self, resource: Resource, namespace: str, body: Object) -> None:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(errors.NotFound):  # the namespace comes a moment after the server
                    await self.cluster.create(resource, namespace, body)
                    return
                await asyncio.sleep(0.1)

    async def _beat(self) -> None:
        while True:
            for name in self.names:
                now = wall_now()
                with contextlib.suppress(errors.ClusterError):  # the next beat comes in time
                    await self.cluster.patch(LEASES, "kube-node-lease", name, {"spec": {"renewTime": now}})
            await asyncio.sleep(_HEARTBEAT_S)

    # --- Pods

    def _changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        if new is None or not new["spec"].get("nodeName"):
            return
        uid = new["metadata"]["uid"]
        if "deletionTimestamp" in new["metadata"]:
            if old is None or "deletionTimestamp" not in old["metadata"]:
                self._spawn(self._later(self.grace_s, self._end, new))
        elif self._images(new) != self._images(self._shown.get(uid, {})):
            is_new = uid not in self._shown
            self._shown[uid] = new
            self._spawn(self._later(self.ready_s if is_new else 0.5, self._report, new))

    def _images(self, pod: Object) -> list[str]:
        return [c["image"] for c in pod.get("spec", {}).get("containers", ())]

    async def _later(self, seconds: float, act: Callable[[Object], Any], pod: Object) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(errors.NotFound):
            await act(pod)

    async def _report(self, pod: Object) -> None:
        current = self.pods.objects.get(key_of(pod))
        if current is not None and current["metadata"]["uid"] == pod["metadata"]["uid"]:
            await self.report(current, self.is_good(current))

    async def report(self, pod: Object, ready: bool) -> None:
        """Say what the Pod's containers are doing."""
        while True:
            metadata = pod["metadata"]
            try:
                await self.cluster.patch_status(
                    PODS, metadata["namespace"], metadata["name"], self._status(pod, ready), metadata["resourceVersion"]
                )
                return
            except errors.Conflict:
                pod = await self.cluster.get(PODS, metadata["namespace"], metadata["name"])

    def _status(self, pod: Object, ready: bool) -> Object:
        statuses = [
            {
                "name": c["name"],
                "ready": ready,
                "image": c["image"],
                "imageID": self.ids(c["image"]),
                "restartCount": 0,
                "state": {"running": {"startedAt": _NOW}},
            }
            for c in pod["spec"]["containers"]
        ]
        had = pod.get("status", {}).get("conditions", ())
        gates = [c for c in had if c["type"] == orchestration.IN_PLACE_GATE]
        is_open = not pod["spec"].get("readinessGates") or [c["status"] for c in gates] == ["True"]
        conditions = [
            *[c for c in had if c["type"] not in ("Ready", "ContainersReady", "Initialized")],
            *(
                {"type": type_, "status": str(on), "lastTransitionTime": _NOW}
                for type_, on in (("Initialized", True), ("ContainersReady", ready), ("Ready", ready and is_open))
            ),
        ]
        return {"phase": "Running", "podIP": "10.9.0.9", "conditions": conditions, "containerStatuses": statuses}

    async def _end(self, pod: Object) -> None:
        metadata = pod["metadata"]
        await self.cluster._call(
            "DELETE",
            PODS,
            metadata["namespace"],
            metadata["name"],
            body={"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}},
        )


def wall_now() -> str:
    """The wall clock as a Lease has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

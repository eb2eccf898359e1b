"""What a test of ModelWarmups works with: nodes, kubelets that do as an image's name says, and looks at the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import JOBS, MODEL_WARMUPS, NAMESPACES, NODES, PODS, Object, key_of
from aibrix_operator.cluster.watch import Change, Watch

ENABLED, POOL = "model.aibrix.ai/warmup-enabled", "resource-pool.aibrix.ai/name"
NODE_ANNOTATION = "model.aibrix.ai/target-node"
GOOD, FAILS, UNPULLABLE, SLOW = "good", "fails", "unpullable", "slow"
"""Images: it ends with 0, ends with 1, cannot be pulled, runs until it is told."""
_TIME = "2026-01-01T00:00:00Z"


class Kubelets:
    """Of all nodes, for one namespace: pull, run and end what is bound to them."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.pulled: list[tuple[str, str]] = []
        """(node, image) in order."""
        self.attempts: list[str] = []
        """Names of Pods that ended with 1."""
        self._cluster = cluster
        self._pods = Watch(cluster, PODS, namespace=namespace, on_event=self._changed)
        self._begun: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._spawn(self._pods.run())
        await self._pods.synced.wait()
        try:
            yield
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        if new is None or not new["spec"].get("nodeName"):
            return
        uid = new["metadata"]["uid"]
        if "deletionTimestamp" in new["metadata"]:
            self._spawn(self._remove(new))
        elif uid not in self._begun:
            self._begun.add(uid)
            self._spawn(self._run(new))

    async def _run(self, pod: Object) -> None:
        containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
        images = [container["image"] for container in containers]
        node = pod["spec"]["nodeName"]
        if UNPULLABLE in images:
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
            await self._say(pod, "Pending", [_status(c, waiting) for c in containers])
            return
        self.pulled += [(node, image) for image in images]
        running = {"running": {"startedAt": _TIME}}
        await self._say(pod, "Running", [_status(c, running) for c in containers])
        if SLOW not in images:
            await self.end(pod, failed=FAILS in images)

    async def end(self, pod: Object, *, failed: bool = False, message: str = "") -> None:
        """All containers end."""
        code = 1 if failed else 0
        if failed:
            self.attempts.append(pod["metadata"]["name"])
        ended = {"terminated": {"exitCode": code, "reason": "Error" if failed else "Completed", "message": message}}
        statuses = [_status(c, ended) for c in pod["spec"]["containers"]]
        await self._say(pod, "Failed" if failed else "Succeeded", statuses)

    async def _say(self, pod: Object, phase: str, statuses: list[Object]) -> None:
        names = {c["name"] for c in pod["spec"].get("initContainers", ())}
        status = {"phase": phase, "containerStatuses": [s for s in statuses if s["name"] not in names]}
        metadata = pod["metadata"]
        while True:
            try:
                current = await self._cluster.get(PODS, metadata["namespace"], metadata["name"])
                await self._cluster.patch_status(
                    PODS, metadata["namespace"], metadata["name"], status, current["metadata"]["resourceVersion"]
                )
            except errors.Conflict:
                continue
            except errors.NotFound:
                return  # deleted meanwhile
            return

    async def _remove(self, pod: Object) -> None:
        namespace, name = key_of(pod)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # gone already
            await self._cluster._call("DELETE", PODS, namespace, name, body=body)


def _status(container: Object, state: Object) -> Object:
    image = container["image"]
    told = {"name": container["name"], "image": image, "imageID": f"sha256:{image}"}
    return told | {"ready": False, "restartCount": 0, "state": state}


def _node_of(job: Object) -> str:
    """A Job that is not ours counts by its name."""
    name: str = job["metadata"]["name"]
    return str(job["metadata"].get("annotations", {}).get(NODE_ANNOTATION, name))


class Stage:
    """One namespace with a pool of its own."""

    _numbers = itertools.count(1)

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pool = self.namespace = f"serving-{next(self._numbers)}"
        self.kubelets = Kubelets(cluster, self.namespace)
        self._nodes: list[str] = []

    async def open(self) -> None:
        labels = {POOL: self.pool}
        await self.cluster.create(NAMESPACES, None, {"metadata": {"name": self.namespace, "labels": labels}})

    async def close(self) -> None:
        """Warmups and Jobs go, so that the next test's quota of CPU is its own."""
        for warmup in await self.warmups():
            with contextlib.suppress(errors.NotFound):
                await self.cluster.delete(MODEL_WARMUPS, self.namespace, warmup["metadata"]["name"])
        for node in self._nodes:
            with contextlib.suppress(errors.NotFound):
                await self.cluster.delete(NODES, None, node)

    # --- what users do

    async def node(self, name: str, *, taint: bool = False, **labels: str | None) -> str:
        """Register a node that is open to this namespace's warmups. Returns its whole name."""
        whole = f"{self.namespace}-{name}"
        kept = {ENABLED: "true", POOL: self.pool} | labels
        capacity = {"cpu": "100", "memory": "1Ti", "pods": "500"}
        ready = {"type": "Ready", "status": "True", "reason": "Ours", "message": ""}
        times = {"lastHeartbeatTime": _TIME, "lastTransitionTime": _TIME}
        taints = {"taints": [{"key": "ours", "effect": "NoSchedule"}]} if taint else {}
        body = {
            "metadata": {"name": whole, "labels": {k: v for k, v in kept.items() if v is not None}},
            "spec": taints,
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready | times]},
        }
        await self.cluster.create(NODES, None, body)
        self._nodes.append(whole)
        return whole

    async def label(self, node: str, **labels: str | None) -> None:
        await self.cluster.patch(NODES, None, node, {"metadata": {"labels": labels}})

    async def apply(self, name: str, *nodes: str, image: str = GOOD, **spec: Any) -> Object:
        """A warmup of these nodes; without one, of all with the pool's label."""
        target: Object = {"nodes": {"names": list(nodes)}}
        if not nodes:
            target = {"nodeSelector": {"matchLabels": {POOL: self.pool}}}
        whole = {"targets": [target], "imagePreload": {"images": [{"image": image, "command": ["true"]}]}} | spec
        body = {"apiVersion": MODEL_WARMUPS.api_version, "kind": "ModelWarmup", "metadata": {"name": name}}
        body["spec"] = {field: value for field, value in whole.items() if value is not None}
        return await self.cluster.create(MODEL_WARMUPS, self.namespace, body)

    # --- what they see

    async def warmups(self) -> list[Object]:
        return (await self.cluster.list_all(MODEL_WARMUPS, self.namespace))[0]

    async def warmup(self, name: str) -> Object:
        return await self.cluster.get(MODEL_WARMUPS, self.namespace, name)

    async def status(self, name: str) -> Object:
        return (await self.warmup(name)).get("status") or {}

    async def jobs(self) -> dict[str, Object]:
        """Node → its Job, of this namespace."""
        found, _ = await self.cluster.list_all(JOBS, self.namespace)
        return {_node_of(job): job for job in found}

    async def pods(self) -> list[Object]:
        return (await self.cluster.list_all(PODS, self.namespace))[0]

    async def until(self, holds: Callable[[], Awaitable[Any]], within_s: float = 30) -> Any:
        """Ask until the answer is true; AssertionError with all statuses after ``within_s``."""
        try:
            async with asyncio.timeout(within_s):
                while not (answer := await holds()):  # noqa: ASYNC110  # many kinds are asked, no watch tells of all
                    await asyncio.sleep(0.05)
        except TimeoutError:
            told = [w.get("status") for w in await self.warmups()]
            raise AssertionError(f"{told}, jobs {list(await self.jobs())}") from None
        return answer

    async def ended(self, name: str, phase: str, within_s: float = 30) -> Object:
        """The status, once it has this phase."""

        async def has_phase() -> Object | None:
            status = await self.status(name)
            return status if status.get("phase") == phase else None

        found: Object = await self.until(has_phase, within_s)
        return found

    async def versions(self) -> dict[str, str]:
        """resourceVersion of all that the operator writes here."""
        found = {}
        for obj in [*await self.warmups(), *(await self.jobs()).values()]:
            found[obj["metadata"]["uid"]] = obj["metadata"]["resourceVersion"]
        return found

    async def at_rest(self, quiet_s: float = 1.5) -> dict[str, str]:
        """The versions, once they have been the same for a while: the Job controller counts a second after the fact."""
        last: dict[str, str] = {}

        async def are_the_same() -> bool:
            nonlocal last
            before, last = last, await self.versions()
            if before != last:
                await asyncio.sleep(quiet_s)
            return before == last

        await self.until(are_the_same)
        return last


def in_force(status: Object) -> list[tuple[str, str]]:
    """(type, reason) of the conditions that are True."""
    return [(c["type"], c["reason"]) for c in status["conditions"] if c["status"] == "True"]


def told(status: Object) -> dict[str, tuple[str, str]]:
    """Node → phase and reason."""
    return {item["nodeName"]: (item["phase"], item.get("reason", "")) for item in status["targets"]}

"""The process that plays the kubelets of a sandbox: registers its nodes and runs the Pods that are bound to them.

``python -m aibrix_operator.sandbox.agent <sandbox folder>``. It holds no state of its own: an agent that is started
again, also after SIGKILL, finds its Pods' folders and takes over the sidecars that still run. SIGTERM leaves them
running too, as a kubelet leaves containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import PODS, Object
from aibrix_operator.cluster.watch import Change, Watch
from aibrix_operator.sandbox import nodes, pod_folder, pod_status, state
from aibrix_operator.sandbox.node_slots import NodeSlots
from aibrix_operator.sandbox.pod_folder import PodFacts, PodFolder
from aibrix_operator.sandbox.pod_worker import Connections, PodWorker
from aibrix_operator.sandbox.state import Sandbox

log = logging.getLogger(__name__)

_ORPHAN_GRACE_S = 2.0


class Agent:
    """All nodes of one sandbox."""

    def __init__(self, sandbox: Sandbox, connections: Connections) -> None:
        self._sandbox = sandbox
        self._connections = connections
        self._nodes = {node.name: node for node in sandbox.nodes}
        self._slots = {
            node.name: NodeSlots(sandbox.node_cidr(node).rpartition(".")[0], node.cards) for node in sandbox.nodes
        }
        self._workers: dict[str, PodWorker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watch = Watch(connections.cluster, PODS, on_event=self._pod_changed)

    async def run(self) -> None:
        """Until cancelled. Ends with the error of a task that failed: the supervisor starts us anew."""
        for folder in pod_folder.list_folders(self._sandbox.pods):
            facts = folder.facts
            if facts is not None:
                self._slots[facts.node].restore(facts.uid, facts.address, facts.card_slots)
        try:
            for node in self._sandbox.nodes:
                self._spawn(nodes.keep_node(self._connections.cluster, self._sandbox, node))
            self._spawn(self._watch.run())
            await self._watch.synced.wait()
            for folder in pod_folder.list_folders(self._sandbox.pods):
                if folder.path.name not in self._workers:
                    self._spawn(self._end_orphan(folder))
            await self._failed
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _pod_changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None, "the watch gives the old object, the new one, or both"
        if pod_status.node_of(pod) not in self._nodes:
            return
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if worker is not None:
            worker.observe(new)
        elif new is not None:
            self._spawn(self._run_pod(new))

    async def _run_pod(self, pod: Object) -> None:
        node = self._nodes[pod_status.node_of(pod)]
        slots, metadata = self._slots[node.name], pod["metadata"]
        uid = metadata["uid"]
        facts = PodFolder(self._sandbox.pods / uid).facts
        if facts is None:
            known = pod.get("status", {}).get("podIP")
            if known:  # without a folder, so it has no sidecar and no cards
                slots.restore(uid, known, ())
            else:
                slots.take(uid, pod_status.gpu_count(pod) if pod_status.has_sidecar(pod) else 0)
            place = slots.held_by(uid)
            facts = PodFacts(metadata["namespace"], metadata["name"], uid, node.name, place.address, place.cards)
        worker = PodWorker(self._sandbox, node, self._connections, pod, facts)
        self._workers[uid] = worker
        try:
            await worker.run()
        finally:
            del self._workers[uid]
        slots.give_back(uid)

    async def _end_orphan(self, folder: PodFolder) -> None:
        """End what an earlier agent ran for a Pod that is gone by now."""
        log.info("%s: its Pod is gone", folder.path.name)
        await asyncio.to_thread(folder.end_processes, _ORPHAN_GRACE_S)
        await asyncio.to_thread(folder.remove)
        for slots in self._slots.values():
            slots.give_back(folder.path.name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self._failed.done():
            self._failed.set_exception(error)


async def serve(sandbox: Sandbox) -> None:
    """Run the agent until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    configuration = kubernetes_client.Configuration()
    await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]  # the loader carries no annotations
        config_file=str(sandbox.kubeconfig), client_configuration=configuration, persist_config=False
    )
    async with kubernetes_client.ApiClient(configuration) as api, aiohttp.ClientSession() as session:
        agent = Agent(sandbox, Connections(Cluster(api), api, session))
        running = asyncio.create_task(agent.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.cancel)
        with contextlib.suppress(asyncio.CancelledError):  # the signal's way of saying "enough"
            await running


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sandbox = state.load_folder(Path(sys.argv[1]))
    if sandbox is None:
        sys.exit(f"{sys.argv[1]} is no sandbox folder")
    asyncio.run(serve(sandbox))


if __name__ == "__main__":
    main()

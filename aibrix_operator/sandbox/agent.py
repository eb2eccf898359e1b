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

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import PODS, Object
from aibrix_operator.cluster.watch import Change, Watch
from aibrix_operator.sandbox import connection, nodes, pod_folder, pod_status, state
from aibrix_operator.sandbox.fleet import NodeShape
from aibrix_operator.sandbox.node_slots import NodeSlots, Place
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
        # Pods that are bound here and have no address and cards yet, by UID; None when the Pod went meanwhile.
        self._waiting: dict[str, Object | None] = {}
        self._look_again = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watch = Watch(connections.cluster, PODS, on_event=self._pod_changed)

    async def run(self) -> None:
        """Until cancelled. Ends with the error of a task that failed: the supervisor starts us anew."""
        for folder in pod_folder.list_folders(self._sandbox.pods):
            facts = folder.facts
            if facts is not None:
                self._slots[facts.node].restore(facts.uid, Place(facts.address, facts.card_slots))
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
        elif uid in self._waiting:
            self._waiting[uid] = new
            self._look_again.set()
        elif new is not None:
            # Noted at once: a first list names every Pod before any task of ours runs, so nobody takes an address that
            # a Pod further down in it has.
            self._waiting[uid] = new
            address = new.get("status", {}).get("podIP")
            if address and PodFolder(self._sandbox.pods / uid).facts is None:
                self._slots[pod_status.node_of(new)].restore(uid, Place(address, ()))
            self._spawn(self._run_pod(uid, self._nodes[pod_status.node_of(new)]))

    async def _run_pod(self, uid: str, node: NodeShape) -> None:
        slots, place = self._slots[node.name], None
        while (pod := self._waiting[uid]) is not None:
            place = self._place(pod, slots)
            if place is not None:
                break
            self._look_again.clear()
            await self._look_again.wait()
        del self._waiting[uid]
        if pod is None or place is None:
            return
        metadata = pod["metadata"]
        facts = PodFacts(metadata["namespace"], metadata["name"], uid, node.name, place.address, place.cards)
        worker = PodWorker(self._sandbox, node, self._connections, pod, facts)
        self._workers[uid] = worker
        try:
            await worker.run()
        finally:
            del self._workers[uid]
        self._give_back(slots, uid)

    def _place(self, pod: Object, slots: NodeSlots) -> Place | None:
        """What the Pod has of its node; None while the node has too little left."""
        uid, cards = pod["metadata"]["uid"], pod_status.gpu_count(pod) if pod_status.has_sidecar(pod) else 0
        place = slots.held_by(uid) or slots.take(uid, cards)
        # A Pod that was deleted while it waited needs nothing any more: its worker only lets it go.
        return Place("", ()) if place is None and pod_status.is_deleted(pod) else place

    def _give_back(self, slots: NodeSlots, uid: str) -> None:
        slots.give_back(uid)
        self._look_again.set()

    async def _end_orphan(self, folder: PodFolder) -> None:
        """End what an earlier agent ran for a Pod that is gone by now."""
        log.info("%s: its Pod is gone", folder.path.name)
        await asyncio.to_thread(folder.end_processes, _ORPHAN_GRACE_S)
        await asyncio.to_thread(folder.remove)
        for slots in self._slots.values():
            self._give_back(slots, folder.path.name)

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
    async with await connection.api_client(sandbox.kubeconfig) as api, aiohttp.ClientSession() as session:
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

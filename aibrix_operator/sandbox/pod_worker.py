"""One Pod's life on a sandbox node, from its binding to its removal. One task a Pod; the agent starts and feeds it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
from kubernetes.aio import client as kubernetes_client

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import PODS, Object
from aibrix_operator.sandbox import nodes, pod_status
from aibrix_operator.sandbox.fleet import NodeShape
from aibrix_operator.sandbox.pod_folder import ContainerRuns, PodFacts, PodFolder
from aibrix_operator.sandbox.sidecar import Sidecar
from aibrix_operator.sandbox.state import Sandbox
from aibrix_operator.sim import card

log = logging.getLogger(__name__)

_RETRY_S = 0.5
# The object is gone already (a forced deletion): nobody waits, and the address may be wanted soon.
_FORCED_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Connections:
    """What all workers share."""

    cluster: Cluster
    api: kubernetes_client.ApiClient
    session: aiohttp.ClientSession


class PodWorker:
    """Brings one Pod to what its object says, and says in its status what it is."""

    def __init__(
        self, sandbox: Sandbox, node: NodeShape, connections: Connections, pod: Object, facts: PodFacts
    ) -> None:
        self._sandbox = sandbox
        self._node = node
        self._connections = connections
        self._facts = facts
        self._folder = PodFolder(sandbox.pods / facts.uid)
        self._pod: Object | None = pod
        self._changed = asyncio.Event()
        self._sidecar: Sidecar | None = None

    def observe(self, pod: Object | None) -> None:
        """The Pod as it is now; None when its object is gone."""
        self._pod = pod
        self._changed.set()

    async def run(self) -> None:
        """Until the Pod is gone, with all that belonged to it. Cancelling leaves its processes running."""
        pod = self._pod
        if pod is not None and pod_status.has_sidecar(pod) and not pod_status.is_deleted(pod):
            await asyncio.to_thread(self._prepare_folder)
            while self._pod is not None and not pod_status.is_deleted(self._pod):
                async with self._container(self._pod) as keeper:
                    await self._live(keeper)
                await self._restart_if_asked()
        else:
            await self._live(None)
        await self._end()

    @contextlib.asynccontextmanager
    async def _container(self, pod: Object) -> AsyncIterator[asyncio.Task[None]]:
        """Keep a sidecar running inside the block, by the task it yields. Leaving it leaves the process as it is."""
        self._sidecar = Sidecar(
            self._folder,
            self._facts.address,
            self._sandbox.runtime_command,
            pod_status.literal_environment(pod),
            self._connections.session,
            self._changed.set,
        )
        keeper = asyncio.create_task(self._sidecar.run())
        keeper.add_done_callback(lambda _: self._changed.set())  # _live sees it ended and raises its error
        try:
            yield keeper
        finally:
            keeper.cancel()
            await asyncio.wait([keeper])

    async def _live(self, keeper: asyncio.Task[None] | None) -> None:
        """Publish the status until the Pod is deleted, or its container is to be restarted.

        ``keeper`` keeps the sidecar running, where there is one; its failure is raised here.
        """
        while (pod := self._pod) is not None and not pod_status.is_deleted(pod):
            if keeper is not None and keeper.done():
                keeper.result()
            if self._sidecar is not None and pod_status.restart_token(pod) != self._folder.container.token:
                return
            self._changed.clear()
            try:
                await self._publish(pod)
            except errors.ClusterError as error:
                # A conflict heals by the next event; the rest by trying again. Which it is does not matter here.
                log.info("%s: %s; trying again", self._facts.name, error)
                with contextlib.suppress(TimeoutError):  # nothing changed meanwhile: try with what is known
                    await asyncio.wait_for(self._changed.wait(), _RETRY_S)
                continue
            await self._changed.wait()

    async def _publish(self, pod: Object) -> None:
        places = {"address": self._facts.address, "node_address": self._sandbox.node_address(self._node)}
        now = nodes.timestamp()
        if pod_status.is_finished(pod):
            return
        ready = self._sidecar is None or self._sidecar.is_ready
        restarts = self._folder.container.restarts if self._sidecar is not None else 0
        status = pod_status.running(pod, **places, ready=ready, restarts=restarts, now=now)
        if pod_status.runs_to_completion(pod) and pod.get("status", {}).get("phase") == "Running":
            status = pod_status.succeeded(pod, **places, now=now)
        if not pod_status.differs(pod, status):
            return
        metadata = pod["metadata"]
        written = await self._connections.cluster.patch_status(
            PODS, metadata["namespace"], metadata["name"], status, metadata["resourceVersion"]
        )
        if self._pod is pod:  # else something newer has come meanwhile
            self.observe(written)

    def _prepare_folder(self) -> None:
        """Make the folder and its cards, unless an earlier agent has."""
        if self._folder.facts is not None:
            return
        self._folder.path.mkdir(mode=0o700, exist_ok=True)
        kind = card.parse_card(self._node.card_kind)
        cards = [
            card.Card(self._node.card_uuid(slot), kind.total_bytes, kind.reserved_bytes)
            for slot in self._facts.card_slots
        ]
        card.create(self._folder.cards, cards)
        # Nothing of the Pod is started before this: a folder without facts can be thrown away.
        self._folder.write_facts(self._facts)

    async def _restart_if_asked(self) -> None:
        """Kill everything in the container, as the kernel does, and forget what its own file system held."""
        pod, runs = self._pod, self._folder.container
        if pod is None or pod_status.is_deleted(pod) or pod_status.restart_token(pod) == runs.token:
            return
        log.info("%s: the container is restarted", self._facts.name)
        await asyncio.to_thread(self._folder.end_processes, 0.0)
        self._folder.forget_container()
        self._folder.write_container(ContainerRuns(runs.restarts + 1, pod_status.restart_token(pod)))

    async def _end(self) -> None:
        """End the Pod's processes, remove its folder, and then its object: who sees it gone finds nothing left."""
        pod = self._pod
        if self._folder.path.exists():
            grace_s = pod_status.grace_s(pod) if pod is not None else _FORCED_GRACE_S
            await asyncio.to_thread(self._folder.end_processes, grace_s)
        await asyncio.to_thread(self._folder.remove)
        while self._pod is not None:
            try:
                await self._remove_object(self._pod)
                return
            except (kubernetes_client.ApiException, aiohttp.ClientError, TimeoutError) as error:
                log.info("%s: deletion: %s; trying again", self._facts.name, error)
                await asyncio.sleep(_RETRY_S)

    async def _remove_object(self, pod: Object) -> None:
        """Tell the API server that nothing of the Pod runs any more, which lets it drop the object."""
        core = kubernetes_client.CoreV1Api(self._connections.api)
        metadata = pod["metadata"]
        options = kubernetes_client.V1DeleteOptions(
            grace_period_seconds=0, preconditions=kubernetes_client.V1Preconditions(uid=metadata["uid"])
        )
        try:
            await core.delete_namespaced_pod(metadata["name"], metadata["namespace"], body=options)
        except kubernetes_client.ApiException as error:
            if error.status not in (404, 409):  # gone, or another object has the name by now
                raise

"""The operator process: connects, fills the caches, stands for election, runs kopf, and stops between steps.

Passes and steps are the leading replica's alone (``leading.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import kopf

from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.events import EventRecorder
from aibrix_operator.cluster.lease import LeaseSettings
from aibrix_operator.cluster.lease_thread import ElectionThread
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, REPLICA_SETS, Object, key_of
from aibrix_operator.cluster.watch import Change, Watch, without_bookkeeping
from aibrix_operator.modelclaim import handlers, leading, reconcile
from aibrix_operator.modelclaim.leading import LeadersWriter, Leading
from aibrix_operator.modelclaim.parse import slim_deployment, slim_pod, slim_replica_set
from aibrix_operator.modelclaim.probes import Probes
from aibrix_operator.modelclaim.world import World
from aibrix_operator.runtime_api.client import RuntimeClient

log = logging.getLogger(__name__)

STOP_GRACE_S = 10.0
RESYNC_S = 300.0
"""How often claims are listed anew: kopf does not tell of an object that vanished while its watch was away."""
RETRY_S = 2.0
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    lease: LeaseSettings
    kubeconfig: Path | None = None
    """None: the cluster that the process runs in."""
    namespace: str | None = None
    """None: all namespaces."""
    runtime_token_file: Path | None = None
    """A file with the bearer token that runtimes ask for."""
    liveness_endpoint: str | None = None
    """Such as ``http://0.0.0.0:8081/healthz``, with ``/readyz`` beside it; None: no server for probes."""


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Steps under way are finished, for at most ``STOP_GRACE_S``.

    What fails and cannot go on is raised, and ends the process: it is started again, and another leads meanwhile.
    """
    token = settings.runtime_token_file.read_text().strip() if settings.runtime_token_file else None
    connector = aiohttp.TCPConnector(limit=0, limit_per_host=4)
    async with (
        await Cluster.connect(settings.kubeconfig) as cluster,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        connect = partial(Cluster.connect, settings.kubeconfig, max_connections=2)
        elector = ElectionThread(connect, settings.lease, _identity())
        recorder = EventRecorder(cluster, component="aibrix-operator", instance=socket.gethostname())
        runtimes = RuntimeClient(session, token, partial(leading.fence, elector))
        world = World(LeadersWriter(cluster, elector), runtimes, recorder, lambda: datetime.now(UTC))
        reconcile.attach(world)
        replica = _Replica(cluster, elector, world, settings)
        await replica.start()
        try:
            await _run_kopf(replica)
        finally:
            await replica.stop()
        replica.raise_failure()


def own_namespace() -> str | None:
    """The namespace of the Pod that this process runs in; None outside of a cluster."""
    try:
        return _NAMESPACE_FILE.read_text().strip() or None
    except OSError:
        return None


def _identity() -> str:
    """This process's alone: one that is started again in the same place is another candidate."""
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"


class _Replica:
    """What runs beside kopf: the watches, the election and the probes."""

    def __init__(self, cluster: Cluster, elector: ElectionThread, world: World, settings: Settings) -> None:
        self.world = world
        self.settings = settings
        self.is_to_end = asyncio.Event()
        """Something failed that nothing else can make up for."""
        self._cluster = cluster
        self._elector = elector
        self._watches = _watch(cluster, world, settings.namespace)
        self._synced = asyncio.Event()
        self._leading = Leading(world, self._list_claims, self._watch_over)
        self._background: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._probes: Probes | None = None
        if settings.liveness_endpoint is not None:
            self._probes = Probes(
                settings.liveness_endpoint, self._synced.is_set, lambda: elector.is_leader, world.metrics.registry
            )

    async def start(self) -> None:
        """Begin to fill the caches, and to take part in the election once they are full."""
        self.world.recorder.start()
        if self._probes is not None:
            await self._probes.start()
        for watch in self._watches:
            self._run(watch.run(), f"watch of {watch.resource.plural}")
        self._run(self._follow_claims(), "list of claims")
        self._run(self._elect(), "election")

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._watch_over(task)
        self._background.append(task)
        return task

    def _watch_over(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed, so this replica ends", task.get_name(), exc_info=error)
            self._failure = self._failure or error
            self.is_to_end.set()

    async def _elect(self) -> None:
        await self._synced.wait()  # who is not ready to take over at once does not stand
        await self._elector.run(self._leading.begin, self._leading.end)

    async def stop(self) -> None:
        """End between steps, give the lease back, write the last Events. Again is fine."""
        if not self._background:
            return
        await self._leading.close(STOP_GRACE_S)  # the election still renews meanwhile
        background, self._background = self._background, []
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)  # the election's end gives the Lease back
        with contextlib.suppress(errors.ClusterError):  # Events are told if they can be
            await self.world.recorder.stop(2.0)
        if self._probes is not None:
            await self._probes.stop()
        self.is_to_end.set()  # kopf's own task that waits for it would be waited for

    def raise_failure(self) -> None:
        """Raise what made the replica end, if anything did."""
        if self._failure is not None:
            raise self._failure

    # --- claims

    async def _follow_claims(self) -> None:
        """Fill the cache, and drop from it now and then what no watch said was deleted."""
        while True:
            await self._list_claims()
            for watch in self._watches:
                await watch.synced.wait()
            self._synced.set()
            await asyncio.sleep(RESYNC_S)

    async def _list_claims(self) -> None:
        """Bring the cache to what the API server has now."""
        while True:
            try:
                listed, version = await self._cluster.list_all(MODEL_CLAIMS, self.settings.namespace)
            except errors.ClusterError as error:
                log.warning("%s; listing again in %.0f s", error, RETRY_S)
                await asyncio.sleep(RETRY_S)
                continue
            claims = [without_bookkeeping(obj) for obj in listed]
            take_list(self.world, claims, int(version) if version.isdecimal() else 0)
            return


def _watch(cluster: Cluster, world: World, namespace: str | None) -> list[Watch]:
    """The watches of kinds that are not ours: Pods, and what leads from a Pod to its pool's policy."""
    pods = Watch(cluster, PODS, namespace=namespace, slim=slim_pod, on_event=partial(reconcile.pod_changed, world))
    replica_sets = Watch(
        cluster,
        REPLICA_SETS,
        namespace=namespace,
        label_selector=names.POOL_LABEL,  # a ReplicaSet carries the labels of its Pods
        slim=slim_replica_set,
        on_event=partial(reconcile.pool_changed, world),
    )
    deployments = Watch(
        cluster,
        DEPLOYMENTS,
        namespace=namespace,
        slim=slim_deployment,
        on_event=partial(reconcile.pool_changed, world),
    )
    world.use_pods(pods.objects)
    world.replica_sets, world.deployments = replica_sets.objects, deployments.objects
    return [pods, replica_sets, deployments]


async def _run_kopf(replica: _Replica) -> None:
    settings = replica.settings
    registry = kopf.OperatorRegistry()
    handlers.register(registry)

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    # In here, and not after kopf: at its end it waits 5 s for every task in the loop, and then cancels it.
    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await replica.stop()

    kopf_settings = kopf.OperatorSettings()
    kopf_settings.persistence.diffbase_storage = handlers.NoDifferences()
    kopf_settings.posting.enabled = False  # Events are the recorder's, of the object's own story
    kopf_settings.scanning.disabled = settings.namespace is not None  # no cluster-wide rights are needed then
    await kopf.operator(
        registry=registry,
        settings=kopf_settings,
        memo=kopf.Memo(world=replica.world),
        standalone=True,
        clusterwide=settings.namespace is None,
        namespaces=[settings.namespace] if settings.namespace else [],
        stop_flag=replica.is_to_end,
    )


def take_list(world: World, listed: Sequence[Object], version: int) -> None:
    """Claims of a list as events; those that it lacks and that are no younger than it are gone."""
    uids = set()
    for obj in listed:
        uids.add(_uid(obj))
        reconcile.claim_changed(world, Change.MODIFIED, None, obj)
    for obj in list(world.watched_claims.values()):
        seen = obj["metadata"]["resourceVersion"]
        if _uid(obj) not in uids and seen.isdecimal() and int(seen) <= version:
            log.info("claim %s is gone, and no watch said so yet", "/".join(key_of(obj)))
            reconcile.claim_changed(world, Change.DELETED, obj, None)


def _uid(obj: Object) -> str:
    return str(obj["metadata"]["uid"])

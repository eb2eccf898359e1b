"""The operator process: connects, fills the caches, runs kopf and the passes, and stops between steps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence
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
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, REPLICA_SETS, Object, key_of
from aibrix_operator.cluster.watch import Change, Watch, without_bookkeeping
from aibrix_operator.modelclaim import handlers, reconcile
from aibrix_operator.modelclaim.parse import slim_deployment, slim_pod, slim_replica_set
from aibrix_operator.modelclaim.world import World
from aibrix_operator.runtime_api.client import RuntimeClient

log = logging.getLogger(__name__)

STOP_GRACE_S = 10.0
RESYNC_S = 300.0
"""How often claims are listed anew: kopf does not tell of an object that vanished while its watch was away."""
RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    kubeconfig: Path | None = None
    """None: the cluster that the process runs in."""
    namespace: str | None = None
    """None: all namespaces."""
    runtime_token_file: Path | None = None
    """A file with the bearer token that runtimes ask for."""
    liveness_endpoint: str | None = None
    """Such as ``http://0.0.0.0:8081/healthz``; None: no liveness server."""


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Steps under way are finished, for at most ``STOP_GRACE_S``."""
    token = settings.runtime_token_file.read_text().strip() if settings.runtime_token_file else None
    cluster = await Cluster.connect(settings.kubeconfig)
    connector = aiohttp.TCPConnector(limit=0, limit_per_host=4)
    async with aiohttp.ClientSession(connector=connector) as session:
        recorder = EventRecorder(cluster, component="aibrix-operator", instance=socket.gethostname())
        world = World(cluster, RuntimeClient(session, token), recorder, lambda: datetime.now(UTC))
        reconcile.attach(world)
        watches = _watch(cluster, world, settings.namespace)
        recorder.start()
        background = [asyncio.create_task(w.run(), name=f"watch of {w.resource.plural}") for w in watches]
        background.append(
            asyncio.create_task(_follow_claims(cluster, watches, world, settings.namespace), name="list of claims")
        )
        try:
            await _run_kopf(world, settings)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await cluster.close()


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


async def _run_kopf(world: World, settings: Settings) -> None:
    registry = kopf.OperatorRegistry()
    handlers.register(registry)

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    # In here, and not after kopf: at its end it waits 5 s for every task in the loop, and then cancels it.
    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await _stop(world)

    kopf_settings = kopf.OperatorSettings()
    kopf_settings.posting.enabled = False  # Events are the recorder's, of the object's own story
    kopf_settings.scanning.disabled = settings.namespace is not None  # no cluster-wide rights are needed then
    await kopf.operator(
        registry=registry,
        settings=kopf_settings,
        memo=kopf.Memo(world=world),
        standalone=True,
        clusterwide=settings.namespace is None,
        namespaces=[settings.namespace] if settings.namespace else [],
        liveness_endpoint=settings.liveness_endpoint,
    )


async def _follow_claims(cluster: Cluster, watches: Sequence[Watch], world: World, namespace: str | None) -> None:
    """Fill the cache before the first pass, and drop from it now and then what no watch said was deleted."""
    while True:
        try:
            listed, version = await cluster.list_all(MODEL_CLAIMS, namespace)
        except errors.ClusterError as error:
            log.warning("%s; listing again in %.0f s", error, RETRY_S)
            await asyncio.sleep(RETRY_S)
            continue
        _take_list(world, [without_bookkeeping(obj) for obj in listed], int(version) if version.isdecimal() else 0)
        if not world.is_synced:
            for watch in watches:
                await watch.synced.wait()
            world.is_synced = True
            world.passes.start()
            for name in {key[0] for key in (*world.watched_claims, *world.watched_pods)}:
                world.passes.wake(name)
        await asyncio.sleep(RESYNC_S)


def _take_list(world: World, listed: Sequence[Object], version: int) -> None:
    """Claims of a list as events; those that it lacks and that are no younger than it are gone."""
    uids = set()
    for obj in listed:
        uids.add(_uid(obj))
        reconcile.claim_changed(world, Change.MODIFIED, None, obj)
    for obj in list(world.watched_claims.values()):
        seen = obj["metadata"]["resourceVersion"]
        if _uid(obj) not in uids and seen.isdecimal() and int(seen) <= version:
            log.warning("claim %s is gone, and no watch said so", "/".join(key_of(obj)))
            reconcile.claim_changed(world, Change.DELETED, obj, None)


def _uid(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


async def _stop(world: World) -> None:
    """End between steps: no more passes, the steps under way finish, then Events are written out."""
    if world.is_synced:
        await world.passes.stop(STOP_GRACE_S)
    for reader in world.readers.values():
        reader.stop()
    await asyncio.gather(world.runtime_steps.stop(STOP_GRACE_S), world.api_steps.stop(STOP_GRACE_S))
    with contextlib.suppress(errors.ClusterError):  # Events are told if they can be
        await world.recorder.stop(2.0)

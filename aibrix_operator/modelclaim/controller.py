"""The controller of ModelClaims as the operator process sees it: its watches, its feed and its terms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from prometheus_client import CollectorRegistry

from aibrix_operator.api import names
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.patiently import patiently
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, REPLICA_SETS, Object, Resource, key_of
from aibrix_operator.cluster.watch import Change, Watch
from aibrix_operator.modelclaim import reconcile
from aibrix_operator.modelclaim.parse import slim_deployment, slim_pod, slim_replica_set
from aibrix_operator.modelclaim.world import World

log = logging.getLogger(__name__)


class ClaimFeed:
    """What the API server tells of claims, for one world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        """As ``Feed.changed``."""
        reconcile.claim_changed(self._world, change, old, new)

    def listed(self, objects: Collection[Object], version: int) -> None:
        """Claims of a list as events; those that it lacks and that are no younger than it are gone."""
        uids = set()
        for obj in objects:
            uids.add(_uid(obj))
            reconcile.claim_changed(self._world, Change.MODIFIED, None, obj)
        for obj in list(self._world.watched_claims.values()):
            seen = obj["metadata"]["resourceVersion"]
            if _uid(obj) not in uids and seen.isdecimal() and int(seen) <= version:
                log.info("claim %s is gone, and no watch said so yet", "/".join(key_of(obj)))
                reconcile.claim_changed(self._world, Change.DELETED, obj, None)


class ModelClaimController:
    """A ``Controller`` over one world."""

    name = "modelclaim"

    def __init__(self, world: World) -> None:
        """``world``: attached by ``reconcile.attach``."""
        self.world = world
        self._own = {MODEL_CLAIMS: ClaimFeed(world)}

    @property
    def own(self) -> Mapping[Resource, ClaimFeed]:
        """Claims."""
        return self._own

    @property
    def metrics(self) -> Sequence[CollectorRegistry]:
        """Of claims also on replicas that do not lead."""
        return (self.world.metrics.registry,)

    def watches(self, cluster: Cluster, namespace: str | None) -> list[Watch]:
        """The watches of kinds that are not ours: Pods, and what leads from a Pod to its pool's policy."""
        world = self.world
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
        world.use_pods(pods.objects, pods.list_anew)
        world.replica_sets, world.deployments = replica_sets.objects, deployments.objects
        return [pods, replica_sets, deployments]

    async def begin(self) -> None:
        """Start passes, with fresh memory and fresh readings.

        Pods are listed after the claims: one on a Pod that nobody has heard of would count as having lost it.
        """
        world = self.world
        await patiently(world.list_pods, self.name)
        world.start_afresh()
        world.is_synced = True
        world.passes.start()
        for namespace in {key[0] for key in (*world.watched_claims, *world.watched_pods)}:
            world.look(namespace)

    async def end(self, grace_s: float) -> None:
        """No more passes; steps under way may finish for ``grace_s`` and are cut then."""
        world = self.world
        await world.passes.stop(grace_s)
        for reader in world.readers.values():
            reader.stop()
        await asyncio.gather(world.runtime_steps.stop(grace_s), world.api_steps.stop(grace_s))


def _uid(obj: Object) -> str:
    return str(obj["metadata"]["uid"])

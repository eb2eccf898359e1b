"""What only the leading replica does: passes and steps. Every replica's caches are warm; a term begins with them.

A term that is over ends everything under way at once, and the next one, here or elsewhere, begins as after a restart.
Ending the process instead, as Go's controllers do that cannot cancel what they run, would cost the warm caches, and a
Deployment lets a container that ends again and again wait for minutes, just when the API server has come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aibrix_operator.api.term import TERM_HEADER, Term
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.lease import Lead
from aibrix_operator.cluster.resource import Object, Resource
from aibrix_operator.modelclaim.world import World, Writer


class NotLeading(errors.ClusterError):
    """This replica may not write now."""

    temporary = True


class LeadersWriter:
    """A ``Writer`` that sends nothing while this replica does not lead, whatever its queues still hold.

    The elector ends them too, but a process that was stopped and goes on runs what is due in any order.
    """

    def __init__(self, cluster: Writer, elector: Lead) -> None:
        self._cluster = cluster
        self._elector = elector

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> Object:
        """As ``Cluster.patch_status``."""
        self._check(resource, name)
        return await self._cluster.patch_status(resource, namespace, name, status, resource_version)

    async def add_finalizer(self, resource: Resource, obj: Mapping[str, Any], finalizer: str) -> Object:
        """As ``Cluster.add_finalizer``."""
        self._check(resource, obj["metadata"]["name"])
        return await self._cluster.add_finalizer(resource, obj, finalizer)

    async def remove_finalizer(self, resource: Resource, obj: Mapping[str, Any], finalizer: str) -> Object:
        """As ``Cluster.remove_finalizer``."""
        self._check(resource, obj["metadata"]["name"])
        return await self._cluster.remove_finalizer(resource, obj, finalizer)

    async def patch_annotations(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        annotations: Mapping[str, str | None],
        *,
        uid: str | None = None,
    ) -> Object:
        """As ``Cluster.patch_annotations``. No resourceVersion guards these."""
        self._check(resource, name)
        return await self._cluster.patch_annotations(resource, namespace, name, annotations, uid=uid)

    def _check(self, resource: Resource, name: str) -> None:
        if not self._elector.is_leader:
            raise NotLeading(f"this replica does not lead, so {resource.plural} {name} was not written")


def fence(elector: Lead) -> Mapping[str, str] | None:
    """What runtimes are told with each call; None when nothing may be changed."""
    term = elector.term
    return None if term is None else {TERM_HEADER: str(term)}


class Leading:
    """Begins and ends terms of one world. ``begin`` and ``end`` are the elector's callbacks."""

    def __init__(
        self, world: World, list_claims: Callable[[], Awaitable[None]], watch_over: Callable[[asyncio.Task[None]], None]
    ) -> None:
        """``list_claims`` brings the world's claims to what the API server has now, however long that takes.

        ``watch_over`` ends the process when the task that begins a term fails: it would lead and do nothing.
        """
        self._world = world
        self._list_claims = list_claims
        self._watch_over = watch_over
        self._beginning: asyncio.Task[None] | None = None
        self._is_closed = False

    def begin(self, term: Term) -> None:
        """Start passes as soon as the claims are what the last leader left."""
        if not self._is_closed:
            self._beginning = asyncio.get_running_loop().create_task(self._begin(), name=f"begin of term {term}")
            self._watch_over(self._beginning)

    async def _begin(self) -> None:
        # The watch may lag behind what the last leader wrote, and a promise that is not seen would be made twice.
        await self._list_claims()
        world = self._world
        world.start_afresh()
        world.is_synced = True
        world.passes.start()
        for namespace in {key[0] for key in (*world.watched_claims, *world.watched_pods)}:
            world.look(namespace)

    async def end(self, grace_s: float = 0.0) -> None:
        """No more passes; steps under way may finish for ``grace_s`` and are cut then."""
        if self._beginning is not None:
            self._beginning.cancel()
        world = self._world
        await world.passes.stop(grace_s)
        for reader in world.readers.values():
            reader.stop()
        await asyncio.gather(world.runtime_steps.stop(grace_s), world.api_steps.stop(grace_s))

    async def close(self, grace_s: float) -> None:
        """As ``end``, and no term begins any more."""
        self._is_closed = True
        await self.end(grace_s)

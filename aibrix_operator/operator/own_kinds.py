"""The objects of our own kinds: listed at the start of a process and of a term, and anew now and then.

kopf tells of their changes, but not of an object that vanished while its watch was away. A kind whose definition the
cluster lacks (they are upgraded later, say) has no objects and holds nothing up; it is asked for until it is there, and
has a watch of ours from then on. kopf looks for it when its definition changes, and misses it where the API server's
discovery is behind; without rights in the whole cluster it looks only as it starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.patiently import patiently
from aibrix_operator.cluster.resource import Object, Resource
from aibrix_operator.cluster.watch import Change, Watch, without_bookkeeping
from aibrix_operator.controller.controller import Feed

log = logging.getLogger(__name__)

RESYNC_S = 300.0
MISSING_S = 10.0
"""How often a kind that is not installed is asked for."""


class OwnKinds:
    """Lists the own kinds of one process for their feeds."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str | None,
        feeds: Mapping[Resource, Sequence[Feed]],
    ) -> None:
        self.feeds = feeds
        self._cluster = cluster
        self._namespace = namespace
        self._missing: set[Resource] = set()
        self._listed = {resource: asyncio.Event() for resource in feeds}

    @property
    def missing(self) -> list[str]:
        """Plurals of the kinds that the cluster does not know."""
        return sorted(resource.plural for resource in self._missing)

    async def wait_until_listed(self) -> None:
        """Every kind has been listed once, or is not there."""
        for listed in self._listed.values():
            await listed.wait()

    async def follow(self, resource: Resource) -> None:
        """List it now, and anew now and then, until cancelled."""
        while True:
            was_missing = resource in self._missing
            await self.list_anew(resource)
            self._listed[resource].set()
            if was_missing and resource not in self._missing:
                await self._watch(resource)
            await asyncio.sleep(MISSING_S if resource in self._missing else RESYNC_S)

    async def _watch(self, resource: Resource) -> None:
        def changed(change: Change, old: Object | None, new: Object | None) -> None:
            for feed in self.feeds[resource]:
                feed.changed(change, old, new)

        def listed(objects: Collection[Object], version: int) -> None:
            for feed in self.feeds[resource]:
                feed.listed(objects, version)

        await Watch(self._cluster, resource, namespace=self._namespace, on_event=changed, on_list=listed).run()

    async def list_anew(self, resource: Resource) -> None:
        """Tell the feeds what the API server has now, however long it takes to say so."""
        try:
            objects, version = await patiently(
                lambda: self._cluster.list_all(resource, self._namespace), f"list of {resource.plural}"
            )
        except errors.NotFound:
            if resource not in self._missing:
                self._missing.add(resource)
                log.warning("%s.%s are not installed; going on without them", resource.plural, resource.group)
            return
        slim = [without_bookkeeping(obj) for obj in objects]
        for feed in self.feeds[resource]:
            feed.listed(slim, int(version) if version.isdecimal() else 0)
        if resource in self._missing:
            self._missing.discard(resource)
            log.info("%s.%s are installed now", resource.plural, resource.group)

    async def run_once_installed(self, watch: Watch) -> None:
        """Run the watch of a kind that the cluster may lack, as soon as it has it."""
        while True:
            try:
                await patiently(lambda: self._ask_for_one(watch.resource), f"watch of {watch.resource.plural}")
            except errors.NotFound:
                await asyncio.sleep(MISSING_S)
            else:
                await watch.run()

    async def _ask_for_one(self, resource: Resource) -> None:
        async for _ in self._cluster.pages(resource, self._namespace, limit=1):
            break

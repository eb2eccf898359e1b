"""A namespace with StormServices on a real API server, as its tests act on it and look at it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from storm_cluster import PODS, PODSETS, REVISIONS, ROLESETS, SERVICES, STORMSERVICES

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import Object, Resource
from bench.fleet.fake_nodes import FakeNodes

NAMESPACES = Resource("", "v1", "namespaces")


class Stage:
    """One namespace, and the nodes that all share."""

    def __init__(self, cluster: Cluster, namespace: str, nodes: FakeNodes) -> None:
        self.cluster, self.namespace, self.nodes = cluster, namespace, nodes

    async def apply(self, body: dict[str, Any]) -> Object:
        return await self.cluster.create(STORMSERVICES, self.namespace, body)

    async def get(self, resource: Resource, name: str) -> Object:
        return await self.cluster.get(resource, self.namespace, name)

    async def list(self, resource: Resource, **labels: str) -> list[Object]:
        selector = ",".join(f"{k}={v}" for k, v in labels.items())
        found, _ = await self.cluster.list_all(resource, self.namespace, label_selector=selector)
        return sorted(found, key=lambda o: o["metadata"]["name"])

    async def edit(self, name: str, **spec: Any) -> Object:
        return await self.cluster.patch(STORMSERVICES, self.namespace, name, {"spec": spec})

    async def set_images(self, name: str, image: str, *roles: str) -> None:
        present = await self.get(STORMSERVICES, name)
        template = present["spec"]["template"]
        for changed in template["spec"]["roles"]:
            if not roles or changed["name"] in roles:
                changed["template"]["spec"]["containers"][0]["image"] = image
        await self.edit(name, template=template)

    async def is_ready(self, name: str) -> bool:
        body = await self.get(STORMSERVICES, name)
        status = body.get("status", {})
        return status.get("observedGeneration") == body["metadata"]["generation"] and any(
            c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ())
        )

    async def ready(self, name: str = "pd", within_s: float = 60) -> Object:
        await self.until(lambda: self.is_ready(name), within_s)
        return await self.get(STORMSERVICES, name)

    async def until(self, holds: Callable[[], Any], within_s: float = 30) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not await holds():  # noqa: ASYNC110  # many kinds are asked about, so no one watch tells
                    await asyncio.sleep(0.1)
        except TimeoutError:
            storms = await self.list(STORMSERVICES)
            raise AssertionError([s.get("status") for s in storms]) from None

    async def versions(self) -> dict[str, str]:
        """resourceVersion of everything that we write."""
        found = {}
        for resource in (STORMSERVICES, ROLESETS, PODSETS, PODS, SERVICES, REVISIONS):
            for obj in await self.list(resource):
                found[f"{resource.plural}/{obj['metadata']['name']}"] = obj["metadata"]["resourceVersion"]
        return found

    async def rest(self, seconds: float = 3.0, within_s: float = 30.0) -> None:
        """Nothing is written for a while, once what others write of what was done has come to its end."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        before: dict[str, str] | None = None
        while (present := await self.versions()) != before:
            assert loop.time() < deadline_s, f"still written: {before}, {present}"
            before = present
            await asyncio.sleep(seconds)


async def registered(name: str) -> None:
    """In the place of a node's registration: it is there already."""
    return


async def account(cluster: Cluster, namespace: str) -> None:
    """Pods are refused until the namespace has its account."""
    accounts = Resource("", "v1", "serviceaccounts")
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(errors.NotFound):
                await cluster.get(accounts, namespace, "default")
                return
            await asyncio.sleep(0.1)


async def gone(cluster: Cluster, name: str) -> None:
    """Until the namespace is."""
    async with asyncio.timeout(90):
        while True:
            try:
                await cluster.get(NAMESPACES, None, name)
            except errors.NotFound:
                return
            await asyncio.sleep(0.2)

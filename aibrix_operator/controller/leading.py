"""Only the leading replica writes. This guard stands before every write and every call, whatever queues still hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from aibrix_operator.api.term import TERM_HEADER
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.lease import Lead
from aibrix_operator.cluster.resource import Object, Resource


class NotLeading(errors.ClusterError):
    """This replica may not write now."""

    temporary = True


class Publisher(Protocol):
    """The calls of ``cluster.client.Cluster`` by which a controller publishes what it decided."""

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> Object: ...

    async def add_finalizer(self, resource: Resource, obj: Mapping[str, Any], finalizer: str) -> Object: ...

    async def remove_finalizer(self, resource: Resource, obj: Mapping[str, Any], finalizer: str) -> Object: ...

    async def patch_annotations(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        annotations: Mapping[str, str | None],
        *,
        uid: str | None = None,
    ) -> Object: ...


class Writer(Publisher, Protocol):
    """The calls that change something, as controllers make them."""

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object: ...

    async def replace(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any]
    ) -> Object: ...

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str | None = None
    ) -> Object: ...

    async def patch(self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]) -> Object: ...


class LeadersWriter:
    """A ``Writer`` that sends nothing while this replica does not lead, whatever its queues still hold.

    The elector ends them too, but a process that was stopped and goes on runs what is due in any order.
    """

    def __init__(self, cluster: Writer, elector: Lead) -> None:
        self._cluster = cluster
        self._elector = elector

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object:
        """As ``Cluster.create``."""
        self._check(resource, str(body["metadata"].get("name") or body["metadata"].get("generateName")))
        return await self._cluster.create(resource, namespace, body)

    async def replace(self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any]) -> Object:
        """As ``Cluster.replace``."""
        self._check(resource, name)
        return await self._cluster.replace(resource, namespace, name, body)

    async def delete(self, resource: Resource, namespace: str | None, name: str, *, uid: str | None = None) -> Object:
        """As ``Cluster.delete``."""
        self._check(resource, name)
        return await self._cluster.delete(resource, namespace, name, uid=uid)

    async def patch(self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]) -> Object:
        """As ``Cluster.patch``."""
        self._check(resource, name)
        return await self._cluster.patch(resource, namespace, name, patch)

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

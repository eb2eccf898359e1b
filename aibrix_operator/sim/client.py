"""The store through the calls of ``cluster.client.Cluster``, for controllers that create and delete objects.

Every call meets the store's faults: refused, late, lost on its way back, or carried out and unanswered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import EVENTS, Object, Resource, key_of
from aibrix_operator.sim.store import Store, merged


class StoreClient:
    """One caller's client of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.patch_status = store.patch_status
        self.add_finalizer = store.add_finalizer
        self.remove_finalizer = store.remove_finalizer
        self.patch_annotations = store.patch_annotations

    async def list_all(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = ""
    ) -> tuple[list[Object], str]:
        """As ``Cluster.list_all``; selectors are those of labels that are there or equal a value."""
        await self._store.reach("list", resource, "")
        found = [
            obj
            for obj in self._store.of(resource)
            if namespace in (None, key_of(obj)[0]) and selects(label_selector, obj)
        ]
        return found, str(self._store.version)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """As ``Cluster.get``."""
        await self._store.reach("get", resource, name)
        return self._store.get(resource, (namespace or "", name))

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object:
        """As ``Cluster.create``."""
        if resource == EVENTS:
            return await self._store.create(resource, namespace, body)
        metadata = dict(body["metadata"])
        if "name" not in metadata:
            metadata["name"] = f"{metadata['generateName']}{next(self._store.identities):05d}"
        metadata |= {"generation": 1, **({"namespace": namespace} if namespace else {})}
        new = {**body, "metadata": metadata}

        def arrive(verb: str) -> Object:
            stored = self._store.add(resource, new)
            self._store.writes.append((verb, resource.plural, metadata["name"], dict(body)))
            return stored

        return await self._store.call("create", resource, metadata["name"], body, arrive)

    async def replace(self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any]) -> Object:
        """As ``Cluster.replace``, where the body says which version it replaces."""

        def arrive(verb: str) -> Object:
            stored = self._store.replace(resource, body)
            self._store.writes.append((verb, resource.plural, name, dict(body)))
            return stored

        return await self._store.call("replace", resource, name, body, arrive)

    async def delete(self, resource: Resource, namespace: str | None, name: str, *, uid: str | None = None) -> Object:
        """As ``Cluster.delete``."""
        key = (namespace or "", name)

        def arrive(verb: str) -> Object:
            if uid not in (None, self._store.get(resource, key)["metadata"]["uid"]):
                raise errors.Conflict(f"DELETE {resource.plural} {name}: HTTP 409: another UID", status=409)
            self._store.writes.append((verb, resource.plural, name, {}))
            self._store.delete(resource, key)
            return self._store.objects.get((resource.plural, *key), {"kind": "Status", "metadata": {}})

        return await self._store.call("delete", resource, name, {}, arrive)

    async def patch(self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]) -> Object:
        """As ``Cluster.patch``: with a UID or a version in its metadata only that object in that version."""
        if resource == EVENTS:
            return await self._store.patch(resource, namespace, name, patch)
        key = (namespace or "", name)

        def arrive(verb: str) -> Object:
            old = self._store.get(resource, key)
            wanted = patch.get("metadata", {})
            for field in ("uid", "resourceVersion"):
                if wanted.get(field) not in (None, old["metadata"][field]):
                    raise errors.Conflict(f"PATCH {resource.plural} {name}: HTTP 409: another {field}", status=409)
            self._store.writes.append((verb, resource.plural, name, dict(patch)))
            return old if merged(old, patch) == old else self._store.change(resource, key, patch)

        return await self._store.call("patch", resource, name, patch, arrive)


def selects(label_selector: str, obj: Object) -> bool:
    """Whether the selector, of labels that are there or equal a value, selects it."""
    labels = obj["metadata"].get("labels", {})
    for term in filter(None, label_selector.split(",")):
        name, is_equal, value = term.partition("=")
        if name not in labels or (is_equal and labels[name] != value):
            return False
    return True

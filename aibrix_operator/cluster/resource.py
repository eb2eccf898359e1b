"""Names of API resources and of single objects, as the API server spells them in its paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from aibrix_operator.api import names

# An object as the API server's JSON has it. Values are of any type by nature; api/ parses what controllers read.
Object: TypeAlias = dict[str, Any]
# (namespace, name); the namespace of a cluster-scoped object is "".
Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object by its API group ("" is the core group), version and lower-case plural."""

    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_confidential(self) -> bool:
        """The API server's refusals of it may quote values that must not be logged."""
        return self.group == "" and self.plural in ("secrets", "serviceaccounts")

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path; ``namespace`` None means a cluster-scoped object, or all namespaces of a list."""
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.plural}"
        if name is not None:
            path += f"/{quote(name, safe='')}"
        return f"{path}/{subresource}" if subresource else path


PODS = Resource("", "v1", "pods")
EVENTS = Resource("", "v1", "events")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
REPLICA_SETS = Resource("apps", "v1", "replicasets")
JOBS = Resource("batch", "v1", "jobs")
NODES = Resource("", "v1", "nodes")
NAMESPACES = Resource("", "v1", "namespaces")
CUSTOM_RESOURCE_DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
SERVICES = Resource("", "v1", "services")
SECRETS = Resource("", "v1", "secrets")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices")
HTTP_ROUTES = Resource("gateway.networking.k8s.io", "v1", "httproutes")
REFERENCE_GRANTS = Resource("gateway.networking.k8s.io", "v1beta1", "referencegrants")
MODEL_CLAIMS = Resource(names.MODEL_GROUP, names.MODEL_VERSION, "modelclaims")
MODEL_WARMUPS = Resource(names.MODEL_GROUP, names.MODEL_VERSION, "modelwarmups")
MODEL_ADAPTERS = Resource(names.MODEL_GROUP, names.MODEL_VERSION, "modeladapters")


def key_of(obj: Mapping[str, Any]) -> Key:
    """The object's key. KeyError when it has no name: not an object of the API server."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]

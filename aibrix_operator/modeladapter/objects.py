"""The Service and the EndpointSlices of an adapter, as they are written. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.api.modeladapter import MODELADAPTER
from aibrix_operator.modeladapter.parse import ENGINE_PORT
from aibrix_operator.modeladapter.snapshot import Adapter

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGED_BY = "aibrix-operator"


def service(adapter: Adapter) -> dict[str, Any]:
    """Headless and without a selector: the slices say who is behind it."""
    labels = {names.ADAPTER_NAME_LABEL: adapter.name}
    if adapter.spec is not None and adapter.spec.base_model:
        labels[names.MODEL_LABEL] = adapter.spec.base_model
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(adapter, adapter.name, labels),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "ports": [{"name": "http", "port": ENGINE_PORT, "targetPort": ENGINE_PORT, "protocol": "TCP"}],
        },
    }


def endpoint_slice(adapter: Adapter, port: int, addresses: Sequence[str]) -> dict[str, Any]:
    """One for each port that engines listen on: a slice has one list of ports for all its addresses."""
    labels = {
        SERVICE_NAME_LABEL: adapter.name,
        names.ADAPTER_NAME_LABEL: adapter.name,
        MANAGED_BY_LABEL: MANAGED_BY,
    }
    is_v6 = any(":" in address for address in addresses)
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": _metadata(adapter, slice_name(adapter.name, port), labels),
        "addressType": "IPv6" if is_v6 else "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address]} for address in addresses],
    }


def slice_name(adapter: str, port: int) -> str:
    """The adapter's name for the usual port. Adapters' names have no dots, so no other's slice has this name."""
    return adapter if port == ENGINE_PORT else f"{adapter}.{port}"


def _metadata(adapter: Adapter, name: str, labels: dict[str, str]) -> dict[str, Any]:
    owner = {
        "apiVersion": f"{MODELADAPTER.group}/{MODELADAPTER.version}",
        "kind": MODELADAPTER.kind,
        "name": adapter.name,
        "uid": adapter.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"name": name, "namespace": adapter.namespace, "labels": labels, "ownerReferences": [owner]}

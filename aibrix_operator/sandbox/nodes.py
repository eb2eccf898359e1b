"""The sandbox's nodes as the API server sees them: registered once, kept Ready by Lease heartbeats."""

from __future__ import annotations

import asyncio
import datetime
import logging

from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import LEASES, Object, Resource
from aibrix_operator.sandbox.building import KUBERNETES_VERSION
from aibrix_operator.sandbox.fleet import NodeShape
from aibrix_operator.sandbox.state import Sandbox

log = logging.getLogger(__name__)

NODES = Resource("", "v1", "nodes")
_LEASE_NAMESPACE = "kube-node-lease"
_LEASE_S = 40
_HEARTBEAT_S = 10.0  # both as the kubelet; the controller manager gives a node up after 50 s of silence
_RETRY_S = 1.0
# What a Pod may ask for beside cards. It bounds nothing: no Pod really gets it.
_CPU, _MEMORY, _PODS = "192", "2Ti", "250"


def timestamp() -> str:
    """Now, as the API server writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def keep_node(cluster: Cluster, sandbox: Sandbox, node: NodeShape) -> None:
    """Register ``node`` and renew its Lease until cancelled."""
    registered = False
    while True:
        try:
            if not registered:
                await _create(cluster, NODES, None, node_object(sandbox, node))
                await _create(cluster, LEASES, _LEASE_NAMESPACE, _lease(node))
                registered = True
            await cluster.patch(LEASES, _LEASE_NAMESPACE, node.name, {"spec": {"renewTime": _micro_time()}})
        except errors.NotFound:
            registered = False  # somebody deleted the node's Lease, or the namespace is not there yet
        except errors.ClusterError as error:
            log.warning("heartbeat of %s: %s", node.name, error)
        await asyncio.sleep(_HEARTBEAT_S if registered else _RETRY_S)


def node_object(sandbox: Sandbox, node: NodeShape) -> Object:
    """The Node as a kubelet registers it: Ready from the start."""
    capacity = {"cpu": _CPU, "memory": _MEMORY, "pods": _PODS, "ephemeral-storage": "4Ti"}
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    if node.cards:
        capacity[names.GPU_RESOURCE] = str(node.cards)
        labels["nvidia.com/gpu.product"] = node.card_kind
    now = timestamp()
    healthy = ("MemoryPressure", "DiskPressure", "PIDPressure")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"podCIDR": sandbox.node_cidr(node), "podCIDRs": [sandbox.node_cidr(node)]},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": sandbox.node_address(node)},
                {"type": "Hostname", "address": node.name},
            ],
            "conditions": [
                *(_condition(kind, "False", "KubeletHasNoPressure", now) for kind in healthy),
                _condition("Ready", "True", "KubeletReady", now),
            ],
            "nodeInfo": {
                "kubeletVersion": f"{KUBERNETES_VERSION}-sandbox",
                "osImage": "aibrix-operator sandbox",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "containerRuntimeVersion": "sandbox://1",
                "bootID": "",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "machineID": "",
                "systemUUID": "",
            },
        },
    }


def _condition(kind: str, status: str, reason: str, now: str) -> Object:
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": status, "reason": reason, "message": "", **times}


def _lease(node: NodeShape) -> Object:
    spec = {"holderIdentity": node.name, "leaseDurationSeconds": _LEASE_S, "renewTime": _micro_time()}
    metadata = {"name": node.name, "namespace": _LEASE_NAMESPACE}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def _micro_time() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def _create(cluster: Cluster, resource: Resource, namespace: str | None, body: Object) -> None:
    try:
        await cluster.create(resource, namespace, body)
    except errors.AlreadyExists:
        log.info("%s %s is there already: an earlier agent made it", resource.plural, body["metadata"]["name"])

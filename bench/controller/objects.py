"""The ModelClaims and Pods of a benchmark run."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from aibrix_operator.api import names
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, REPLICA_SETS, Object, Resource

NAMESPACE = "bench"
POOL = "bench"
_NETWORKS = range(2, 16)  # sandboxes take those above
_NETWORK_ENV = "AIBRIX_BENCH_NETWORK"
NAMESPACES = Resource("", "v1", "namespaces")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class Fleet:
    """Warm Pods with one card each, and what a claim asks of a card."""

    claims_per_pod: int
    usable_bytes: int
    footprint: str
    kv_floor: str


def _network() -> str:
    """The Pods' addresses are 127.NETWORK.0.0/16. Taken once, for this process and those that it starts."""
    if _NETWORK_ENV not in os.environ:
        os.environ[_NETWORK_ENV] = next(str(number) for number in _NETWORKS if _is_free(f"127.{number}.0.1"))
    return os.environ[_NETWORK_ENV]


def _is_free(address: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, names.RUNTIME_PORT))
        except OSError:
            return False
    return True


def claim(name: str, fleet: Fleet) -> Object:
    return {
        "apiVersion": MODEL_CLAIMS.api_version,
        "kind": "ModelClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "modelName": name,
            "podSelector": {"matchLabels": {names.POOL_LABEL: POOL}},
            "artifactURL": f"huggingface://example/{name}",
            "engine": "vllm",
            "engineConfig": {"args": {"--max-model-len": "4096", "--enable-prefix-caching": ""}},
            "perGPU": {"maximumFootprint": fleet.footprint, "kvFloor": fleet.kv_floor},
        },
    }


def pod_address(number: int) -> str:
    """Each Pod has a loopback address of its own, so that one process can play every runtime."""
    return f"127.{_network()}.{number // 250}.{number % 250 + 1}"


def _pod(number: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"warm-{number:04d}",
            "namespace": NAMESPACE,
            "labels": {names.POOL_LABEL: POOL, names.ENABLED_LABEL: "true"},
        },
        "spec": {
            "nodeName": "bench-node",  # nobody schedules here
            "containers": [
                {
                    "name": "runtime",
                    "image": "example.org/runtime",
                    "ports": [{"containerPort": names.RUNTIME_PORT}],
                    "resources": {"limits": {names.GPU_RESOURCE: "1"}, "requests": {names.GPU_RESOURCE: "1"}},
                }
            ],
        },
    }


def _controlled_by(owner: Object) -> Object:
    about = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return about | {key: owner["metadata"][key] for key in ("name", "uid")}


async def create_pool(cluster: Cluster, policy: str, replicas: int) -> Object:
    """The Deployment with this policy, and its ReplicaSet, which is returned. No controller runs: they make no Pods."""
    labels = {names.POOL_LABEL: POOL, names.ENABLED_LABEL: "true"}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {names.POOL_LABEL: POOL}},
        "template": {"metadata": {"labels": labels}, "spec": _pod(0)["spec"]},
    }
    metadata = {"name": POOL, "namespace": NAMESPACE, "labels": labels}
    annotations = {names.POOL_POLICY_ANNOTATION: policy}
    apps: Object = {"apiVersion": "apps/v1", "spec": spec}
    deployment = {**apps, "kind": "Deployment", "metadata": {**metadata, "annotations": annotations}}
    made = await cluster.create(DEPLOYMENTS, NAMESPACE, deployment)
    owned = {**metadata, "ownerReferences": [_controlled_by({**deployment, **made})]}
    replica_set = {**apps, "kind": "ReplicaSet", "metadata": owned}
    return {**replica_set, **await cluster.create(REPLICA_SETS, NAMESPACE, replica_set)}


async def create_pods(cluster: Cluster, count: int, owner: Object | None = None) -> None:
    """Running, ready Pods, by writing the status that a kubelet would; ``owner`` is the ReplicaSet that has them."""
    for number in range(count):
        body = _pod(number)
        if owner is not None:
            body["metadata"]["ownerReferences"] = [_controlled_by(owner)]
        made = await cluster.create(PODS, NAMESPACE, body)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": made["metadata"]["creationTimestamp"]}
        address = pod_address(number)
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": made["metadata"]["creationTimestamp"],
            "conditions": [ready],
        }
        await cluster.patch_status(
            PODS, NAMESPACE, made["metadata"]["name"], status, made["metadata"]["resourceVersion"]
        )


async def create_claims(cluster: Cluster, claim_names: Iterable[str], fleet: Fleet, writers: int) -> None:
    """Create the claims from ``writers`` concurrent writers."""
    shared = iter(claim_names)

    async def write() -> None:
        for name in shared:
            await cluster.create(MODEL_CLAIMS, NAMESPACE, claim(name, fleet))

    await asyncio.gather(*itertools.starmap(write, [()] * writers))

"""The warm pool that a sandbox starts with."""

from __future__ import annotations

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import Object

POOL = "demo"
DEPLOYMENT = f"{POOL}-pool"
NAMESPACE = "default"
# No image is pulled: the agent starts this package's own sidecar in its place.
_IMAGE = "aibrix/runtime:sandbox"


def deployment(replicas: int) -> Object:
    """A Deployment of ``replicas`` warm Pods with one GPU each, in the pool ``demo`` of namespace ``default``."""
    labels = {names.POOL_LABEL: POOL, names.ENABLED_LABEL: "true"}
    container = {
        "name": "runtime",
        "image": _IMAGE,
        "ports": [{"name": "http", "containerPort": names.RUNTIME_PORT}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": names.RUNTIME_PORT}},
        "resources": {"limits": {names.GPU_RESOURCE: "1"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {names.POOL_LABEL: POOL}},
            # A replacement needs the card that its predecessor still has.
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }

"""Label, annotation and finalizer names, spelled once. All are AIBrix v0.8.0's."""

from __future__ import annotations

MODEL_GROUP = "model.aibrix.ai"
MODEL_VERSION = "v1alpha1"

POOL_LABEL = "claim.model.aibrix.ai/pool"
ENABLED_LABEL = "claim.model.aibrix.ai/enabled"
POOL_POLICY_ANNOTATION = "claim.model.aibrix.ai/pool-policy"
CLAIM_FINALIZER = "model.aibrix.ai/modelclaim-finalizer"

ROUTE_PREFIX = "route.claim.model.aibrix.ai/"
WAKE_PREFIX = "wake.modelclaim.aibrix.ai/"

OLD_ROUTE_PREFIX = "modelclaim.aibrix.ai/"
"""Routes as controllers before 0.8 write them."""

MODEL_LABEL = "model.aibrix.ai/name"
"""Of Pods with an engine of their own; an annotation of the same key holds names that no label can."""
PORT_LABEL = "model.aibrix.ai/port"
ENGINE_LABEL = "model.aibrix.ai/engine"
SERVICE_ANNOTATION = "model.aibrix.ai/service-name"
PATHS_ANNOTATION = "model.aibrix.ai/model-router-custom-paths"

ADAPTER_PREFIX = "adapter.model.aibrix.ai/"
ADAPTER_FINALIZER = ADAPTER_PREFIX + "finalizer"
ADAPTER_NAME_LABEL = ADAPTER_PREFIX + "name"
ADAPTER_ENABLED_LABEL = ADAPTER_PREFIX + "enabled"
SCHEDULED_PODS_ANNOTATION = ADAPTER_PREFIX + "scheduled-pods"
RETRY_COUNT_PREFIX = ADAPTER_PREFIX + "retry-count."
LAST_RETRY_PREFIX = ADAPTER_PREFIX + "last-retry-time."
RUNTIME_CONTAINER = "aibrix-runtime"

CONFIG_ANNOTATION = "model.aibrix.ai/config"

GPU_RESOURCE = "nvidia.com/gpu"
RUNTIME_PORT = 8080


def route_annotation(claim: str) -> str:
    """The Pod annotation by which the gateway finds the port of ``claim``'s engine."""
    return ROUTE_PREFIX + claim


def wake_annotation(claim: str) -> str:
    """The Pod annotation by which the gateway asks for ``claim``'s sleeping engine."""
    return WAKE_PREFIX + claim


def claim_key(namespace: str, name: str) -> str:
    """``namespace/name``, the one spelling of an object's key in logs, metrics and maps."""
    return f"{namespace}/{name}"

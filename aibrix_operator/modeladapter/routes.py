"""The HTTPRoute by which AIBrix's own gateway finds an adapter, and the ReferenceGrant that lets it. Pure.

Our gateway goes by the adapter's status and needs neither. They are made for adapters that carry the name of a model as
label or annotation, where the cluster has the Gateway API.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from aibrix_operator.api import names
from aibrix_operator.modeladapter.snapshot import Adapter

GATEWAY_NAMESPACE: Final = "aibrix-system"
GATEWAY_NAME: Final = "aibrix-eg"
TIMEOUT: Final = "120s"
PATHS: Final = (
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/classify",
    "/generate",
    "/generatevideo",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
)
DEFAULT_PORT: Final = 8000
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_MOST_NAME = 253


def served_name(adapter: Adapter) -> str:
    """The model that the route is for; empty: none is asked for."""
    return adapter.labels.get(names.MODEL_LABEL) or adapter.annotations.get(names.MODEL_LABEL, "")


def route_name(model: str) -> str:
    """``<model>-router``; names that are none for Kubernetes are made one, told apart by a hash."""
    plain = f"{model}-router"
    if _DNS_NAME.fullmatch(model) and len(plain) <= _MOST_NAME and ".." not in model:
        return plain
    digest = hashlib.sha256(model.encode()).hexdigest()[:12]
    clean = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    tail = f"-{digest}-router"
    return f"{clean[: _MOST_NAME - len(tail)].rstrip('-')}{tail}".lstrip("-")


def grant_name(namespace: str) -> str:
    """One grant serves all models of a namespace."""
    return f"aibrix-system-reserved-referencegrant-in-{namespace}"


def http_route(adapter: Adapter) -> dict[str, Any]:
    """Requests whose header names the model go to the adapter's Service."""
    model = served_name(adapter)
    header = {"type": "Exact", "name": "model", "value": model}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {
            "name": route_name(model),
            "namespace": GATEWAY_NAMESPACE,
            "labels": {names.ADAPTER_NAME_LABEL: adapter.name},
        },
        "spec": {
            "parentRefs": [{"name": GATEWAY_NAME, "namespace": GATEWAY_NAMESPACE}],
            "rules": [
                {
                    "matches": [
                        {"headers": [header], "path": {"type": "PathPrefix", "value": path}} for path in _paths(adapter)
                    ],
                    "backendRefs": [_backend(adapter)],
                    "timeouts": {"request": TIMEOUT},
                }
            ],
        },
    }


def _paths(adapter: Adapter) -> list[str]:
    """The usual ones, then those of the annotation: blanks removed, each once."""
    own = ("".join(part.split()) for part in adapter.annotations.get(names.PATHS_ANNOTATION, "").split(","))
    return list(dict.fromkeys([*PATHS, *(path for path in own if path)]))


def _backend(adapter: Adapter) -> dict[str, Any]:
    text = adapter.labels.get(names.PORT_LABEL, "")
    port = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else DEFAULT_PORT
    service = adapter.annotations.get(names.SERVICE_ANNOTATION) or served_name(adapter)
    return {"name": service, "namespace": adapter.namespace, "port": port}


def leads_to(route: dict[str, Any], adapter: Adapter) -> bool:
    """Whether an HTTPRoute that is there is this adapter's, whoever made it."""
    wanted = _backend(adapter)
    found = [ref for rule in (route.get("spec") or {}).get("rules") or () for ref in rule.get("backendRefs") or ()]
    return any((ref.get("name"), ref.get("namespace")) == (wanted["name"], wanted["namespace"]) for ref in found)


def reference_grant(namespace: str) -> dict[str, Any]:
    """Lets routes of the gateway's namespace lead to Services of ``namespace``."""
    return {
        "apiVersion": "gateway.networking.k8s.io/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": {"name": grant_name(namespace), "namespace": namespace},
        "spec": {
            "from": [
                {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": GATEWAY_NAMESPACE},
            ],
            "to": [{"group": "", "kind": "Service"}],
        },
    }

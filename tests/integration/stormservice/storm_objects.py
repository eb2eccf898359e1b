"""StormServices as a user writes them."""

from __future__ import annotations

from typing import Any

from aibrix_operator.api import orchestration
from aibrix_operator.cluster.resource import Resource

STORMSERVICES = Resource(orchestration.GROUP, orchestration.VERSION, "stormservices")


def role(name: str = "worker", replicas: int | None = 1, *, image: str = "engine:1", **more: Any) -> dict[str, Any]:
    """A role of one container; a field that is given as None is left out."""
    template = {"metadata": {"labels": {"app": "pd"}}, "spec": {"containers": [{"name": "engine", "image": image}]}}
    whole = {"name": name, "replicas": replicas, "template": template, **more}
    return {field: value for field, value in whole.items() if value is not None}


def storm(name: str, *roles: dict[str, Any], roleset: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A StormService of ``roles``; ``roleset`` is merged into the RoleSets' spec, ``spec`` into its own."""
    return {
        "apiVersion": orchestration.API_VERSION,
        "kind": "StormService",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "pd"}},
            "template": {
                "metadata": {"labels": {"app": "pd"}},
                "spec": {"roles": list(roles) or [role()], **(roleset or {})},
            },
            **spec,
        },
    }

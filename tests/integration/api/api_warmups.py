"""ModelWarmups as a user sends them."""

from __future__ import annotations

import copy
from typing import Any

IMAGE = {"image": "busybox", "command": ["true"]}


def warmup(name: str = "warm", **spec: Any) -> dict[str, Any]:
    """A whole object with these fields of its spec; one that is given as None is left out."""
    whole = {"targets": [{"nodes": {"names": ["n1"]}}], "imagePreload": {"images": [IMAGE]}} | spec
    return {
        "apiVersion": "model.aibrix.ai/v1alpha1",
        "kind": "ModelWarmup",
        "metadata": {"name": name},
        "spec": copy.deepcopy({field: value for field, value in whole.items() if value is not None}),
    }


def container(name: str = "check", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox", **more}

"""The runtime sidecar, put into the roles of a StormService that asks for it by an annotation.

AIBrix does this in a webhook and changes the object. Here the object stays as the user wrote it, and what is made of it
has the sidecar; the revision keeps what was made. To ask for it later changes the template, and so rolls it out.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from aibrix_operator.api import names, orchestration

CONTAINER = "aibrix-runtime"
DEFAULT_IMAGE = "aibrix/runtime:v0.8.0"
VOLUME = "adapter-storage"
VOLUME_PATH = "/tmp/aibrix/adapters"
_ENGINES = (("vllm", ("vllm",)), ("sglang", ("sglang",)), ("tgi", ("text-generation-inference",)), ("tgi", ("tgi",)))
_MORE_ENGINES = (("triton", ("triton",)), ("llamacpp", ("llama", "cpp")))


def with_sidecar(template: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    """The RoleSet template as it is used: with the sidecar in every role, if ``annotations`` ask for it."""
    made = copy.deepcopy(dict(template))
    if orchestration.SIDECAR_INJECTION not in annotations:
        return made
    image = annotations.get(orchestration.SIDECAR_IMAGE) or DEFAULT_IMAGE
    shared = (made.get("metadata") or {}).get("annotations") or {}
    for role in (made.get("spec") or {}).get("roles") or ():
        pod = role.setdefault("template", {})
        spec = pod.setdefault("spec", {})
        containers = spec.setdefault("containers", [])
        own = (pod.get("metadata") or {}).get("annotations") or {}
        if all(c.get("name") != CONTAINER for c in containers):
            engine = own.get(names.ENGINE_LABEL) or shared.get(names.ENGINE_LABEL) or engine_of(containers)
            containers.insert(0, _container(image, engine))
        others = [v for v in spec.get("volumes") or () if v.get("name") != VOLUME]
        spec["volumes"] = [*others, {"name": VOLUME, "emptyDir": {}}]
        for container in containers:
            mounts = container.setdefault("volumeMounts", [])
            if all(m.get("name") != VOLUME for m in mounts):
                mounts.append({"name": VOLUME, "mountPath": VOLUME_PATH})
    return made


def engine_of(containers: list[dict[str, Any]]) -> str:
    """The engine that the images' names speak of."""
    images = [str(c.get("image", "")).lower() for c in containers]
    for engine, words in (*_ENGINES, *_MORE_ENGINES):
        if any(all(word in image for word in words) for image in images):
            return engine
    return "unknown"


def _container(image: str, engine: str) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["aibrix_runtime", "--port", str(names.RUNTIME_PORT)],
        "ports": [{"name": "metrics", "containerPort": names.RUNTIME_PORT}],
        "env": [
            {"name": "INFERENCE_ENGINE", "value": engine},
            {"name": "INFERENCE_ENGINE_ENDPOINT", "value": "http://localhost:8000"},
        ],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": names.RUNTIME_PORT},
            "initialDelaySeconds": 3,
            "periodSeconds": 2,
        },
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": names.RUNTIME_PORT},
            "initialDelaySeconds": 5,
            "periodSeconds": 10,
        },
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"cpu": "500m", "memory": "512Mi"},
        },
    }

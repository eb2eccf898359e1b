"""Pods of the stories' own: small tools under Pod Security's `restricted`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from e2e.api import ApiServer, eventually
from e2e.cluster import images
from e2e.nodes.tools_image import TOOLS_IMAGE
from image import rootfs

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
ENFORCED = {"pod-security.kubernetes.io/enforce": "restricted"}
_STARTED_WITHIN_S = 30.0


def make_namespace(api: ApiServer, name: str, labels: Mapping[str, str] = ENFORCED) -> str:
    """Make it and return its name; its Pods must keep to `restricted` unless other labels are given."""
    api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels)}})
    return name


def pod(
    name: str, command: Sequence[str], *, node: str | None = None, labels: Mapping[str, str] = {}
) -> dict[str, Any]:
    """A Pod that runs ``command`` of busybox once and is killed without grace."""
    container = {"name": "tool", "image": TOOLS_IMAGE, "command": list(command), "securityContext": dict(RESTRICTED)}
    spec: dict[str, Any] = {
        "containers": [container],
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"metadata": {"name": name, "labels": dict(labels)}, "spec": spec}


def start(api: ApiServer, namespace: str, made: dict[str, Any]) -> dict[str, Any]:
    """Create the Pod and wait until it runs (or has ended); returns it as it then is."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.create(path, made)
    return wait_started(api, f"{path}/{made['metadata']['name']}")


def wait_started(api: ApiServer, path: str) -> dict[str, Any]:
    def started() -> dict[str, Any] | None:
        seen: dict[str, Any] = api.get(path)
        return seen if seen["status"]["phase"] in ("Running", "Succeeded", "Failed") else None

    return eventually(f"{path} runs", started, _STARTED_WITHIN_S)


def run(
    api: ApiServer, namespace: str, script: str, *, node: str | None = None, labels: Mapping[str, str] = {}
) -> tuple[int, str]:
    """Run a shell script in a Pod of its own; its exit status and what it wrote."""
    name = f"run-{uuid.uuid4().hex[:8]}"
    return _run(api, namespace, pod(name, ["/bin/sh", "-c", script], node=node, labels=labels))


def run_python(api: ApiServer, namespace: str, script: str, arguments: Sequence[str] = ()) -> str:
    """What a Python script writes, in a Pod of the project's own image that has no token of anybody."""
    made = pod(f"python-{uuid.uuid4().hex[:8]}", [f"/usr/local/bin/{rootfs.PYTHON}", "-c", script, *arguments])
    made["spec"]["containers"][0]["image"] = images.OPERATOR
    status, said = _run(api, namespace, made)
    assert status == 0, said
    return said


def _run(api: ApiServer, namespace: str, made: dict[str, Any]) -> tuple[int, str]:
    path = f"/api/v1/namespaces/{namespace}/pods"
    name = made["metadata"]["name"]
    api.create(path, made)

    def ended() -> dict[str, Any] | None:
        seen = api.get(f"{path}/{name}")
        statuses = seen["status"].get("containerStatuses") or [{}]
        return statuses[0].get("state", {}).get("terminated")

    end = eventually(f"{path}/{name} has ended", ended, 60.0)
    said = api.text(f"{path}/{name}/log")
    api.delete(f"{path}/{name}")
    return end["exitCode"], said

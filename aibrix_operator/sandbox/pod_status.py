"""What the agent reads from a Pod and writes into its status, as a kubelet would. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import Object

RESTART_ANNOTATION = "sandbox.aibrix.ai/restart-container"
"""Set or changed on a warm-pool Pod: its container is killed and starts again, as after an out-of-memory kill."""
_FINISHED = ("Succeeded", "Failed")


def node_of(pod: Mapping[str, Any]) -> str:
    """The node that the Pod is bound to; empty before the scheduler has chosen."""
    node: str = pod["spec"].get("nodeName") or ""
    return node


def is_deleted(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_finished(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in _FINISHED


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Running, ready and not on its way out."""
    conditions = pod.get("status", {}).get("conditions", [])
    return not is_deleted(pod) and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def has_sidecar(pod: Mapping[str, Any]) -> bool:
    """A Pod of a warm pool."""
    return names.POOL_LABEL in pod["metadata"].get("labels", {})


def runs_to_completion(pod: Mapping[str, Any]) -> bool:
    """A Job's Pod: whatever it would do is done at once."""
    return any(owner.get("kind") == "Job" for owner in pod["metadata"].get("ownerReferences", []))


def gpu_count(pod: Mapping[str, Any]) -> int:
    """GPUs that the Pod's containers get together. The API server sees to it that limit and request are equal."""
    containers = pod["spec"]["containers"]
    return sum(int(c.get("resources", {}).get("limits", {}).get(names.GPU_RESOURCE, 0)) for c in containers)


def literal_environment(pod: Mapping[str, Any]) -> dict[str, str]:
    """The plain values in ``env`` of the first container; sources (``valueFrom``) would need a real kubelet."""
    entries = pod["spec"]["containers"][0].get("env", [])
    return {entry["name"]: entry.get("value", "") for entry in entries if "valueFrom" not in entry}


def grace_s(pod: Mapping[str, Any]) -> float:
    """How long the Pod's processes may take to end."""
    return float(
        pod["metadata"].get("deletionGracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
    )


def restart_token(pod: Mapping[str, Any]) -> str:
    token: str = pod["metadata"].get("annotations", {}).get(RESTART_ANNOTATION, "")
    return token


def running(pod: Mapping[str, Any], *, address: str, node_address: str, ready: bool, restarts: int, now: str) -> Object:
    """The status of a Pod whose containers run; times that are in its status already stay."""
    old = pod.get("status", {})
    old_containers = {status["name"]: status for status in old.get("containerStatuses", [])}
    containers = []
    for container in pod["spec"]["containers"]:
        before = old_containers.get(container["name"], {})
        started = before.get("state", {}).get("running", {}).get("startedAt")
        same_run = started is not None and before.get("restartCount") == restarts
        state = {"running": {"startedAt": started if same_run else now}}
        containers.append(_container(container, ready, restarts, state))
    return {
        **_base(pod, address, node_address, now),
        "phase": "Running",
        "conditions": _conditions(old, ready, now, reason=None if ready else "ContainersNotReady"),
        "containerStatuses": containers,
    }


def succeeded(pod: Mapping[str, Any], *, address: str, node_address: str, now: str) -> Object:
    """The status of a Job's Pod that has done its work."""
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    return {
        **_base(pod, address, node_address, now),
        "phase": "Succeeded",
        "conditions": _conditions(pod.get("status", {}), False, now, reason="PodCompleted"),
        "containerStatuses": [_container(container, False, 0, ended) for container in pod["spec"]["containers"]],
    }


def _base(pod: Mapping[str, Any], address: str, node_address: str, now: str) -> Object:
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    old = pod.get("status", {})
    init = [_container(container, True, 0, done) for container in pod["spec"].get("initContainers", [])]
    base: Object = {
        "hostIP": node_address,
        "hostIPs": [{"ip": node_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": old.get("startTime", now),
    }
    # Their times matter to nobody, and writing them again each time would never settle.
    return base | ({"initContainerStatuses": old.get("initContainerStatuses", init)} if init else {})


def _container(container: Mapping[str, Any], ready: bool, restarts: int, state: Mapping[str, Any]) -> Object:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": container.get("image", ""),
        "containerID": f"sandbox://{container['name']}-{restarts}",
        "ready": ready,
        "started": "running" in state,
        "restartCount": restarts,
        "state": state,
    }


def _conditions(old: Mapping[str, Any], ready: bool, now: str, *, reason: str | None) -> list[Object]:
    """All conditions: those of others as they are, ours with a new time only where the status flips."""
    known: dict[str, Object] = {condition["type"]: condition for condition in old.get("conditions", [])}
    ours = {"PodReadyToStartContainers": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
    for kind, is_true in ours.items():
        status = "True" if is_true else "False"
        before = known.get(kind, {})
        flipped = before.get("status") != status
        known[kind] = {
            "type": kind,
            "status": status,
            "lastTransitionTime": now if flipped else before.get("lastTransitionTime", now),
        }
        if not is_true and reason is not None:
            known[kind]["reason"] = reason
    return list(known.values())


def differs(pod: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether writing ``status`` would change the Pod."""
    old = pod.get("status", {})
    mine = {key: value for key, value in status.items() if key != "conditions"}
    return not _is_said(mine, old) or _verdicts(old) != _verdicts(status)


def _is_said(mine: Any, old: Any) -> bool:
    """Whether ``old`` says all of ``mine``. What the API server adds, such as ``lastState: {}``, is no difference:
    a status that never settles would be written again for ever."""
    if isinstance(mine, Mapping) and isinstance(old, Mapping):
        return all(key in old and _is_said(value, old[key]) for key, value in mine.items())
    if isinstance(mine, list) and isinstance(old, list):
        return len(mine) == len(old) and all(map(_is_said, mine, old))
    return bool(mine == old)


def _verdicts(status: Mapping[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status.get("conditions", [])}

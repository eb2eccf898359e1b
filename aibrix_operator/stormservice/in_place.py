"""Images changed in running Pods, and the proof that it happened: an image ID that is another than before.

A Pod keeps its old hash until then. What is under way is written on the Pod alone: which hash it goes to, and the image
IDs that it had. So a restart in the middle forgets nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aibrix_operator.api import orchestration
from aibrix_operator.api.orchestration import Reason
from aibrix_operator.controller.steps import Call, Note, Patch
from aibrix_operator.stormservice import likeness
from aibrix_operator.stormservice.outline import patch as merge
from aibrix_operator.stormservice.outline import tell
from aibrix_operator.stormservice.resources import PODS
from aibrix_operator.stormservice.seen import Pod

NOT_READY = "PodNotReady"
STATUS_MISSING = "ContainerStatusMissing"
CONTAINER_NOT_READY = "ContainerNotReady"
UNCHANGED = "ImageIDUnchanged"


def target_of(pod: Pod) -> str:
    """The hash that ``pod`` is on its way to; empty when it is not being updated."""
    return pod.annotations.get(orchestration.IN_PLACE_TARGET, "")


def begin(pod: Pod, rendered: Mapping[str, Any], hash_: str) -> tuple[list[Call], list[Patch], Note]:
    """What comes first where it is not empty: the Pod is taken out of service by our readiness gate. Then its images,
    and the Event of it."""
    images = likeness.changed_images(rendered, pod.body)
    is_way_back = pod.labels.get(orchestration.HASH_LABEL) == hash_ and _recorded(pod) is not None
    state = pod.annotations.get(orchestration.IN_PLACE_STATE) if is_way_back else _state(pod, images)
    annotations = {
        orchestration.IN_PLACE_TARGET: hash_,
        orchestration.IN_PLACE_STATE: state,
        orchestration.IN_PLACE_PENDING: None,
    }
    patch: dict[str, Any] = {"metadata": {"annotations": annotations}}
    if images:
        # A merge patch replaces lists as a whole; of a running Pod's containers nothing but images can change.
        containers = [{**c, "image": images.get(c["name"], c["image"])} for c in pod.body["spec"]["containers"]]
        patch["spec"] = {"containers": containers}
    gate = [] if _gate(pod) in (None, "False") else [_set_gate(pod, "False")]
    told = tell(
        Reason.IN_PLACE_STARTED, f"Pod {pod.name}: new images for {', '.join(sorted(images)) or 'no container'}"
    )
    return gate, [merge(PODS, pod, patch)], told


def advance(pod: Pod, revision_labels: Mapping[str, str]) -> tuple[list[Call], list[Patch], list[Note]]:
    """What an update under way needs next: first our readiness gate, where that is not empty; then its end, or a word
    about what it waits for."""
    pending = _pending(pod)
    if pending:
        if pod.annotations.get(orchestration.IN_PLACE_PENDING) == pending:
            return [], [], []
        said = {"metadata": {"annotations": {orchestration.IN_PLACE_PENDING: pending}}}
        return [], [merge(PODS, pod, said)], []
    gate = [] if _gate(pod) in (None, "True") else [_set_gate(pod, "True")]
    metadata = {
        "labels": {orchestration.HASH_LABEL: target_of(pod), **revision_labels},
        "annotations": dict.fromkeys(
            (orchestration.IN_PLACE_TARGET, orchestration.IN_PLACE_STATE, orchestration.IN_PLACE_PENDING)
        ),
    }
    done = merge(PODS, pod, {"metadata": metadata})
    return gate, [done], [tell(Reason.IN_PLACE_COMPLETED, f"Pod {pod.name} runs its new images")]


def open_gate(pod: Pod) -> list[Call]:
    """A Pod of the present template with our readiness gate that is not being updated is in service: nobody else would
    say so. One of another template may be on its way out of service."""
    return [] if target_of(pod) or _gate(pod) in (None, "True") else [_set_gate(pod, "True")]


def _pending(pod: Pod) -> str:
    """What the update waits for; empty when it is complete."""
    statuses = {c["name"]: c for c in pod.status.get("containerStatuses") or ()}
    names = [c["name"] for c in pod.body["spec"].get("containers", ())]
    # With the gate the Pod cannot be ready before we say so; its containers can.
    is_ready = pod.is_ready if _gate(pod) is None else pod.condition("ContainersReady") in ("True", None)
    if not is_ready:
        return NOT_READY
    if any(name not in statuses for name in names):
        return STATUS_MISSING
    if not all(statuses[name].get("ready") for name in names):
        return CONTAINER_NOT_READY
    is_way_back = target_of(pod) == pod.labels.get(orchestration.HASH_LABEL)
    for name, before in (_recorded(pod) or {}).items():
        has_changed = statuses.get(name, {}).get("imageID", "") != before
        if has_changed is is_way_back:
            return UNCHANGED
    return ""


def _state(pod: Pod, images: Mapping[str, str]) -> str:
    statuses = {c["name"]: c for c in pod.status.get("containerStatuses") or ()}
    before = {name: {"imageID": statuses.get(name, {}).get("imageID", "")} for name in sorted(images)}
    return json.dumps({"lastContainerStatuses": before}, separators=(",", ":"))


def _recorded(pod: Pod) -> dict[str, str] | None:
    """Container → its image ID before the update; None where nothing readable was recorded."""
    try:
        said = json.loads(pod.annotations.get(orchestration.IN_PLACE_STATE, ""))
        return {str(name): str(was["imageID"]) for name, was in said["lastContainerStatuses"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _gate(pod: Pod) -> str | None:
    """The status of our readiness gate, ``Unknown`` before anybody set it; None when the Pod does not have it."""
    gates = (pod.body.get("spec") or {}).get("readinessGates") or ()
    if not any(g.get("conditionType") == orchestration.IN_PLACE_GATE for g in gates):
        return None
    return pod.condition(orchestration.IN_PLACE_GATE) or "Unknown"


@dataclass(frozen=True, slots=True)
class SetGate:
    """Conditions of one version of a Pod, written to its status."""

    namespace: str
    name: str
    version: str
    conditions: tuple[Mapping[str, Any], ...]


def _set_gate(pod: Pod, status: str) -> Call:
    kept = [c for c in pod.status.get("conditions") or () if c.get("type") != orchestration.IN_PLACE_GATE]
    if status == "False":
        kept = [{**c, "status": "False"} if c.get("type") == "Ready" else c for c in kept]
    conditions = (*kept, {"type": orchestration.IN_PLACE_GATE, "status": status})
    version = str(pod.metadata.get("resourceVersion", ""))
    return Call(f"gate/{pod.uid}", SetGate(pod.namespace, pod.name, version, conditions))

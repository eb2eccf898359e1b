"""From what the API server has to one snapshot. Waits for nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from aibrix_operator.api.conditions import bounded
from aibrix_operator.api.modelwarmup import (
    NODE_ANNOTATION,
    NODE_POOL_LABEL,
    REVISION_LABEL,
    WARMUP_LABEL,
    ModelWarmupSpec,
    ModelWarmupStatus,
    WarmupPhase,
)
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import JOBS, NAMESPACES, NODES, PODS, Object
from aibrix_operator.controller.cache import owner_uid
from aibrix_operator.controller.kind import View
from aibrix_operator.controller.steps import Create, Finished, Ref
from aibrix_operator.modelwarmup.snapshot import Job, JobState, Refusal, Report, Warmup


def phase_of(obj: Object) -> WarmupPhase | None:
    """The published phase; None without one that we know."""
    try:
        return WarmupPhase((obj.get("status") or {}).get("phase", ""))
    except ValueError:
        return None


def observe(view: View) -> Warmup | None:
    """None for a warmup that is being deleted: its Jobs go by themselves."""
    own = view.own
    if "deletionTimestamp" in own["metadata"]:
        return None
    spec, problem = _read(own)
    uid, labelled = own["metadata"]["uid"], []
    taken = set()
    for obj in view.children(JOBS):
        if obj["metadata"]["labels"].get(WARMUP_LABEL) == uid:
            labelled.append(_job(obj, view))
        else:
            taken.add(obj["metadata"]["name"])
    namespace = view.cache(NAMESPACES).get(("", own["metadata"]["namespace"]))
    return Warmup(
        ref=Ref.of(own),
        generation=own["metadata"].get("generation", 0),
        spec=spec,
        problem=problem,
        custom=own["spec"].get("custom") or {},
        status=_status(own),
        pool="" if namespace is None else namespace["metadata"]["labels"].get(NODE_POOL_LABEL, ""),
        nodes={node["metadata"]["name"]: node["metadata"]["labels"] for node in view.cache(NODES).values()},
        jobs=tuple(labelled),
        taken=frozenset(taken),
        refusals=tuple(_refusals(view.finished, uid)),
    )


def _read(own: Object) -> tuple[ModelWarmupSpec | None, str]:
    try:
        return ModelWarmupSpec.model_validate(own["spec"]), ""
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return None, bounded(f"spec.{where} cannot be read: {first['msg']}")


def _status(own: Object) -> ModelWarmupStatus:
    """One that cannot be read is as good as none: it is written anew."""
    try:
        return ModelWarmupStatus.model_validate(own.get("status") or {})
    except ValidationError:
        return ModelWarmupStatus(phase=phase_of(own))


def _job(obj: Object, view: View) -> Job:
    metadata, status = obj["metadata"], obj["status"]
    state, reason, message = JobState.ACTIVE, "", ""
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            state = JobState.SUCCEEDED if condition["type"] == "Complete" else JobState.FAILED
            reason, message = condition.get("reason") or "", condition.get("message") or ""
    return Job(
        ref=Ref.of(obj),
        node=metadata["annotations"].get(NODE_ANNOTATION, ""),
        revision=metadata["labels"].get(REVISION_LABEL, ""),
        state=state,
        reason=reason,
        message=message,
        has_ttl=obj["spec"].get("ttlSecondsAfterFinished") is not None,
        is_deleting="deletionTimestamp" in metadata,
        reports=_reports(view.cache(PODS).owned_by(metadata["uid"])),
    )


def _reports(pods: tuple[Object, ...]) -> tuple[Report, ...]:
    """The last word of each container: a Pod that failed may have been followed by another."""
    last: dict[str, tuple[str, Report]] = {}
    for pod in pods:
        for name, said in pod["reports"].items():
            created = pod["metadata"].get("creationTimestamp", "")
            if name not in last or created >= last[name][0]:
                last[name] = created, said
    return tuple(report for _, (_, report) in sorted(last.items()))


def _refusals(finished: tuple[Finished, ...], uid: str) -> list[Refusal]:
    found = []
    for one in finished:
        if not isinstance(one.step, Create) or one.refusal is None:
            continue
        is_name = isinstance(one.refusal, errors.AlreadyExists)
        if is_name and one.found is not None and owner_uid(one.found) == uid:
            continue  # our own, from a try whose answer was lost
        node = one.step.body["metadata"]["annotations"][NODE_ANNOTATION]
        text = str(one.refusal)
        if is_name:
            text = f"{one.step.body['metadata']['name']} already exists and is not controlled by ModelWarmup"
        found.append(Refusal(node, bounded(text, 512), is_name))
    return found


# --- what is kept of the objects of other kinds


def slim_node(obj: Object) -> Object:
    """Its labels: heartbeats then change nothing that anybody looks at."""
    return {"metadata": _identity(obj) | {"labels": obj["metadata"].get("labels") or {}}}


slim_namespace = slim_node


def slim_job(obj: Object) -> Object:
    """What says whose it is, for which node, and how far it is."""
    metadata = obj["metadata"]
    kept = _identity(obj) | {
        "labels": metadata.get("labels") or {},
        "annotations": {k: v for k, v in (metadata.get("annotations") or {}).items() if k == NODE_ANNOTATION},
        "ownerReferences": metadata.get("ownerReferences") or [],
    }
    if "deletionTimestamp" in metadata:
        kept |= {
            "deletionTimestamp": metadata["deletionTimestamp"],
            "finalizers": metadata.get("finalizers") or [],
        }
    ttl = (obj.get("spec") or {}).get("ttlSecondsAfterFinished")
    return {
        "metadata": kept,
        "spec": {"ttlSecondsAfterFinished": ttl},
        "status": {"conditions": (obj.get("status") or {}).get("conditions") or []},
    }


def slim_pod(obj: Object) -> Object:
    """What its containers reported as they ended."""
    reports = {}
    for status in (obj.get("status") or {}).get("containerStatuses") or ():
        ended = (status.get("state") or {}).get("terminated")
        report = None if ended is None else _report(ended.get("message") or "")
        if report is not None:
            reports[status["name"]] = report
    metadata = obj["metadata"]
    kept = _identity(obj) | {
        "creationTimestamp": metadata.get("creationTimestamp", ""),
        "ownerReferences": metadata.get("ownerReferences") or [],
    }
    return {"metadata": kept, "reports": reports}


def _report(text: str) -> Report | None:
    """What ``aibrix-operator fetch`` leaves; None for anything else."""
    try:
        said = json.loads(text)
        return Report(int(said["bytes"]), str(said.get("reason", "")), str(said.get("message", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _identity(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj["metadata"]
    kept = {key: metadata[key] for key in ("name", "uid", "resourceVersion")}
    return kept | ({"namespace": metadata["namespace"]} if "namespace" in metadata else {})

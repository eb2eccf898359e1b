"""Parses what the API server and the sidecars answered into facts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import Object
from aibrix_operator.doctor.facts import ComponentPod, Definition, Lease, PoolPod, Runtime, Standing
from aibrix_operator.modelclaim.parse import count_gpus, parse_time

COMPONENT_LABEL: Final = "app.kubernetes.io/component"


def definition(ours: Object, theirs: Object | None) -> Definition:
    """How the cluster's definition compares with ours. What it has beside is the API server's, or a newer one's."""
    name = ours["metadata"]["name"]
    if theirs is None:
        return Definition(name, Standing.MISSING)
    conditions = (theirs.get("status") or {}).get("conditions") or []
    established: Object = next((c for c in conditions if c.get("type") == "Established"), {})
    if established.get("status") != "True":
        return Definition(name, Standing.NOT_SERVED, str(established.get("message") or "it is not established"))
    lacking = first_lack(ours["spec"], theirs["spec"], "spec")
    return Definition(name, Standing.OTHER, f"{lacking} differs") if lacking else Definition(name, Standing.GOOD)


def first_lack(ours: Any, theirs: Any, where: str) -> str:
    """The first path at which ``theirs`` lacks something of ``ours``; empty when it has all of it."""
    if isinstance(ours, Mapping):
        if not isinstance(theirs, Mapping):
            return where
        for key, value in ours.items():
            lack = first_lack(value, theirs[key], f"{where}.{key}") if key in theirs else f"{where}.{key}"
            if lack:
                return lack
        return ""
    if isinstance(ours, Sequence) and not isinstance(ours, str):
        if not isinstance(theirs, Sequence) or isinstance(theirs, str) or len(ours) != len(theirs):
            return where
        pairs = enumerate(zip(ours, theirs, strict=True))
        return next((lack for n, (a, b) in pairs if (lack := first_lack(a, b, f"{where}[{n}]"))), "")
    return "" if ours == theirs else where


def component_pods(pods: Iterable[Object]) -> tuple[ComponentPod, ...]:
    """Those of operator and gateway."""
    found = []
    for pod in pods:
        metadata, status = pod["metadata"], pod.get("status") or {}
        component = (metadata.get("labels") or {}).get(COMPONENT_LABEL, "")
        if component in ("operator", "gateway") and "deletionTimestamp" not in metadata:
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
            where = metadata.get("namespace", "")
            found.append(ComponentPod(component, where, metadata["name"], ready, "" if ready else _waiting(status)))
    return tuple(found)


def _waiting(status: Mapping[str, Any]) -> str:
    """The kubelet's or the scheduler's word for why; empty when only the probe says no."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if reason := waiting.get("reason"):
                return str(reason)
    return next((str(c.get("reason", "")) for c in status.get("conditions") or () if c["type"] == "PodScheduled"
                 and c["status"] != "True"), "")  # fmt: skip


def lease(namespace: str, name: str, before: Object | None, after: Object | None) -> Lease:
    """The election from two looks at its Lease, a while apart; None: there was none."""
    spec = (after or {}).get("spec") or {}
    then = (before or {}).get("spec") or {}
    moved = (spec.get("renewTime"), spec.get("holderIdentity")) != (then.get("renewTime"), then.get("holderIdentity"))
    return Lease(namespace, name, str(spec.get("holderIdentity") or ""), moved, _skew_s(after or {}, spec))


def _skew_s(lease: Object, spec: Mapping[str, Any]) -> float | None:
    """The holder wrote ``renewTime`` by its own clock, and the API server noted the time of that write by its."""
    renewed = parse_time(spec.get("renewTime"))
    written = [parse_time(entry.get("time")) for entry in lease["metadata"].get("managedFields") or ()] if lease else []
    latest = max((time for time in written if time is not None), default=None)
    return (renewed - latest).total_seconds() if renewed is not None and latest is not None else None


def pool_pod(pod: Object) -> PoolPod:
    """A warm Pod, whose sidecar was not asked yet."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    labels = metadata.get("labels") or {}
    ports = [port.get("containerPort") for c in spec.get("containers") or () for port in c.get("ports") or ()]
    return PoolPod(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        pool=labels.get(names.POOL_LABEL, ""),
        is_enabled=labels.get(names.ENABLED_LABEL) == "true",
        has_sidecar=names.RUNTIME_PORT in ports,
        gpus=count_gpus(spec),
        runtime=Runtime.NOT_ASKED,
    )


def skew_s(observed_at: datetime, now: datetime) -> float:
    """A sidecar's clock less ours; the way of the answer counts as its lag."""
    return (observed_at - now).total_seconds()

"""From the API server's JSON to what the decision looks at. Behind this nobody reads the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from aibrix_operator.api import names
from aibrix_operator.api.modeladapter import ModelAdapterSpec, ModelAdapterStatus
from aibrix_operator.modeladapter.snapshot import Adapter, Target, Way

ENGINE_PORT = 8000
_OLDEST = datetime(1970, 1, 1, tzinfo=UTC)
_PORTS = range(1, 65536)


def parse_adapter(body: Mapping[str, Any]) -> Adapter:
    """An adapter. A spec that the schema cannot have let through comes as None, with what is wrong; a status that does
    not fit counts as empty, and the engines' lists tell anew."""
    metadata = body["metadata"]
    spec, spec_error = None, ""
    try:
        spec = ModelAdapterSpec.model_validate(body.get("spec"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        spec_error = f"{'.'.join(str(part) for part in ('spec', *first['loc']))}: {first['msg']}"
    try:
        status = ModelAdapterStatus.model_validate(body.get("status") or {})
    except ValidationError:
        status = ModelAdapterStatus()
    return Adapter(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation") or 0,
        is_deleting="deletionTimestamp" in metadata,
        has_finalizer=names.ADAPTER_FINALIZER in (metadata.get("finalizers") or ()),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        spec=spec,
        spec_error=spec_error,
        status=status,
    )


def slim_pod(body: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a Pod."""
    metadata, status, spec = body["metadata"], body.get("status") or {}, body.get("spec") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    ready: Mapping[str, Any] = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), {})
    return {
        "metadata": {key: metadata[key] for key in kept if key in metadata} | {"labels": metadata.get("labels") or {}},
        "ip": status.get("podIP") or "",
        "ready": ready.get("lastTransitionTime") or "unknown" if ready.get("status") == "True" else "",
        "sidecar": any(c.get("name") == names.RUNTIME_CONTAINER for c in spec.get("containers") or ()),
    }


def is_another(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two slimmed Pods differ in anything but their version."""
    return {**old["metadata"], "resourceVersion": ""} != {**new["metadata"], "resourceVersion": ""} or any(
        old[key] != new[key] for key in ("ip", "ready", "sidecar")
    )


def parse_target(pod: Mapping[str, Any], *, uses_sidecar: bool) -> Target:
    """Whom to call about a slimmed Pod."""
    metadata, labels = pod["metadata"], pod["metadata"]["labels"]
    text = labels.get(names.PORT_LABEL, "")
    port = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 and int(text) in _PORTS else ENGINE_PORT
    way = Way.SIDECAR if uses_sidecar and pod["sidecar"] else Way.DIRECT
    return Target(
        pod=metadata["name"],
        uid=metadata["uid"],
        ip=pod["ip"],
        port=names.RUNTIME_PORT if way is Way.SIDECAR else port,
        way=way,
        engine=labels.get(names.ENGINE_LABEL, ""),
        engine_port=port,
    )


def ready_since(pod: Mapping[str, Any]) -> datetime | None:
    """Since when a slimmed Pod has been ready; None while it is not."""
    return (parse_time(pod["ready"]) or _OLDEST) if pod["ready"] else None


def created_at(body: Mapping[str, Any]) -> datetime:
    """When the API server made the object."""
    return parse_time(body["metadata"].get("creationTimestamp")) or _OLDEST


def parse_time(text: Any) -> datetime | None:
    """A Kubernetes time; None for what is none."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def parse_slices(slices: Sequence[Mapping[str, Any]]) -> dict[int, frozenset[str]]:
    """Engine port → addresses in its EndpointSlice. One without our label is as good as another content: it is written
    anew with it, so that the next watch finds it."""
    found = {}
    for body in slices:
        ports = [entry.get("port") for entry in body.get("ports") or ()]
        addresses = frozenset(a for endpoint in body.get("endpoints") or () for a in endpoint.get("addresses") or ())
        is_ours = names.ADAPTER_NAME_LABEL in (body["metadata"].get("labels") or {})
        found[ports[0] if ports else ENGINE_PORT] = addresses if is_ours else addresses | {""}
    return found

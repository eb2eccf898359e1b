"""From the API server's JSON to what the gateway knows of a Pod, a claim or an adapter. Nobody else reads the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.api.route import Route, RouteError, parse_route

DEFAULT_PORT = 8000
_DATA_PARALLEL = "data-parallel-size"
_MOST_PORTS = 256
"""More engines than a Pod has cards: a typing error must not become thousands of addresses."""
_PORTS = range(1, 65536)


@dataclass(frozen=True, slots=True)
class Binding:
    """One claim's engine on a Pod, by its route annotation."""

    claim: str
    route: Route
    is_asked_for: bool
    """The Pod carries a request to wake it."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is kept of a Pod."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    ip: str
    is_terminating: bool
    is_ready: bool
    ready_since_s: float
    """Unix seconds; 0 while it is not ready."""
    labels: Mapping[str, str]
    model: str
    """Served by the Pod's own engine; empty for a warm Pod."""
    ports: tuple[int, ...]
    """Of the Pod's own engine, one for each data-parallel rank."""
    engine: str
    """Empty when the Pod does not say."""
    config: str
    """The annotation's text; empty without one."""
    bindings: tuple[Binding, ...]
    """By claim name."""

    @property
    def is_routable(self) -> bool:
        """Whether new requests may go there."""
        return self.is_ready and bool(self.ip) and not self.is_terminating

    def model_names(self) -> set[str]:
        """All models that this Pod says something about."""
        found = {binding.route.model for binding in self.bindings}
        return found | {self.model} if self.model else found


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """What is kept of a ModelClaim."""

    namespace: str
    name: str
    model: str
    engine: str
    phase: str
    """In lower case; ``pending`` before the operator has said anything."""
    reason: str
    """Of ``Ready`` for a failed claim, else of ``Scheduled`` while that is not true."""
    config: str


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """What is kept of a ModelAdapter: the adapter's name is the name that clients ask for."""

    namespace: str
    name: str
    base: str
    pods: tuple[str, ...]
    """Names of the Pods whose engines have it loaded."""


def says_something(body: Mapping[str, Any]) -> bool:
    """Whether a Pod concerns the gateway at all: most Pods of a cluster do not."""
    metadata = body["metadata"]
    labels = metadata.get("labels") or ()
    if names.MODEL_LABEL in labels or names.ADAPTER_ENABLED_LABEL in labels:
        return True  # the latter carries adapters, whatever else it serves
    return any(
        key == names.MODEL_LABEL or key.startswith((names.ROUTE_PREFIX, names.OLD_ROUTE_PREFIX))
        for key in metadata.get("annotations") or ()
    )


def parse_pod(body: Mapping[str, Any]) -> PodFacts:
    """The facts of one Pod. What is malformed in it counts as absent."""
    metadata, status = body["metadata"], _mapping(body.get("status"))
    labels, annotations = _texts(metadata.get("labels")), _texts(metadata.get("annotations"))
    ready_since_s = _ready_since_s(status)
    return PodFacts(
        namespace=str(metadata.get("namespace") or ""),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        ip=str(status.get("podIP") or ""),
        is_terminating="deletionTimestamp" in metadata,
        is_ready=ready_since_s is not None,
        ready_since_s=ready_since_s or 0.0,
        labels=labels,
        model=labels.get(names.MODEL_LABEL) or annotations.get(names.MODEL_LABEL, ""),
        ports=_ports(labels, _mapping(body.get("spec"))),
        engine=labels.get(names.ENGINE_LABEL) or annotations.get(names.ENGINE_LABEL, ""),
        config=annotations.get(names.CONFIG_ANNOTATION, ""),
        bindings=tuple(_bindings(annotations)),
    )


def _bindings(annotations: Mapping[str, str]) -> Iterator[Binding]:
    """By claim; the new prefix wins where a claim has both. An unreadable route is no route."""
    texts = {
        key.removeprefix(prefix): text
        for prefix in (names.OLD_ROUTE_PREFIX, names.ROUTE_PREFIX)
        for key, text in annotations.items()
        if key.startswith(prefix)
    }
    for claim, text in sorted(texts.items()):
        try:
            route = parse_route(text)
        except RouteError:
            continue
        yield Binding(claim, route, names.wake_annotation(claim) in annotations)


def _ports(labels: Mapping[str, str], spec: Mapping[str, Any]) -> tuple[int, ...]:
    port = _integer(labels.get(names.PORT_LABEL), DEFAULT_PORT)
    base = port if port in _PORTS else DEFAULT_PORT
    ranks = _integer(_environment(spec).get(_DATA_PARALLEL), 1)
    ranks = ranks if ranks in range(1, _MOST_PORTS + 1) and base + ranks - 1 in _PORTS else 1
    return tuple(range(base, base + ranks))


def _environment(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Name → plain value over all containers; the first container that sets a name wins."""
    found: dict[str, Any] = {}
    for container in _list(spec.get("containers")):
        for entry in _list(_mapping(container).get("env")):
            entry = _mapping(entry)
            found.setdefault(str(entry.get("name")), entry.get("value"))
    return found


def _ready_since_s(status: Mapping[str, Any]) -> float | None:
    """Unix seconds of the Ready condition; None while it is not true."""
    for condition in _list(status.get("conditions")):
        condition = _mapping(condition)
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return _unix_s(condition.get("lastTransitionTime"))
    return None


def parse_claim(body: Mapping[str, Any]) -> ClaimFacts | None:
    """The facts of one claim; None while it is being deleted: it serves its name no more."""
    metadata, spec, status = body["metadata"], _mapping(body.get("spec")), _mapping(body.get("status"))
    if "deletionTimestamp" in metadata:
        return None
    phase = str(status.get("phase") or "pending").lower()
    return ClaimFacts(
        namespace=str(metadata.get("namespace") or ""),
        name=metadata["name"],
        model=str(spec.get("modelName") or metadata["name"]),
        engine=str(spec.get("engine") or ""),
        phase=phase,
        reason=_reason(status, "Ready" if phase == "failed" else "Scheduled"),
        config=_texts(metadata.get("annotations")).get(names.CONFIG_ANNOTATION, ""),
    )


def _reason(status: Mapping[str, Any], type_: str) -> str:
    """The reason of a condition that is not true; empty otherwise."""
    for condition in _list(status.get("conditions")):
        condition = _mapping(condition)
        if condition.get("type") == type_ and condition.get("status") != "True":
            return str(condition.get("reason") or "")
    return ""


def parse_adapter(body: Mapping[str, Any]) -> AdapterFacts | None:
    """The facts of one adapter; None while it is being deleted: its engines are being told to let it go."""
    metadata, status = body["metadata"], _mapping(body.get("status"))
    if "deletionTimestamp" in metadata:
        return None
    return AdapterFacts(
        namespace=str(metadata.get("namespace") or ""),
        name=metadata["name"],
        base=str(_mapping(body.get("spec")).get("baseModel") or ""),
        pods=tuple(str(pod) for pod in _list(status.get("instances"))),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> dict[str, str]:
    return {key: text for key, text in _mapping(value).items() if isinstance(text, str)}


def _integer(value: Any, default: int) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else default


def _unix_s(text: Any) -> float:
    """Of a Kubernetes time; 0 for what is none."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()

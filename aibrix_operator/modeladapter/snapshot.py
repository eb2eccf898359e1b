"""What one pass over one adapter looks at: frozen, and complete for its decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from aibrix_operator.api.modeladapter import ModelAdapterSpec, ModelAdapterStatus
from aibrix_operator.modeladapter.work import WorkTold


class Way(StrEnum):
    """How an adapter gets into a Pod's engine."""

    DIRECT = "direct"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True)
class Target:
    """One Pod as somebody to call."""

    pod: str
    uid: str
    ip: str
    port: int
    """Of the engine, or of the sidecar."""
    way: Way
    engine: str
    """``vllm`` or ``sglang``, which differ in their paths."""
    engine_port: int


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One entry of an engine's list."""

    is_base: bool
    """The engine says that it is no adapter. Engines that say neither count as adapters."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The last word of a Pod's engine about its models."""

    asked_at_s: float
    """On the monotonic clock: what the engine was told later is not in it."""
    models: Mapping[str, ListedModel]
    error: str = ""
    """Why there is none: ``models`` is empty then and says nothing."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A Pod that the selector takes, or that the status names."""

    target: Target
    created_at: datetime
    ready_since: datetime | None
    """None while it is not ready."""
    is_terminating: bool
    is_selected: bool
    listing: Listing | None = None
    """None: nobody has answered yet."""
    other_adapters: int = 0
    """Adapters beside this one that are on it or on their way to it."""
    work: WorkTold | None = None
    """None: its engine's metrics were not asked for, or nobody has answered yet."""

    @property
    def name(self) -> str:
        """The Pod's."""
        return self.target.pod

    @property
    def is_active(self) -> bool:
        """Whether it may serve the adapter."""
        return self.is_selected and self.ready_since is not None and not self.is_terminating and bool(self.target.ip)


class Verdict(StrEnum):
    """What came of a call to an engine."""

    DONE = "done"
    REFUSED = "refused"
    NOT_SENT = "not sent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Called:
    """A load or unload that ended since the last pass."""

    pod_uid: str
    loads: bool
    artifact_url: str
    verdict: Verdict
    message: str
    ended_at_s: float
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class RouteCalled:
    """A call about the HTTPRoute that ended since the last pass."""

    made: bool
    """It was to be made; else removed."""
    error: str
    """Empty: it is done, or there is nothing to do."""
    ended_at_s: float
    is_forbidden: bool = False
    """The operator lacks the right."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server's no to a Service or an EndpointSlice."""

    is_service: bool
    message: str
    again_at_s: float
    """When it is tried again, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """The object."""

    namespace: str
    name: str
    uid: str
    generation: int
    is_deleting: bool
    has_finalizer: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: ModelAdapterSpec | None
    """None when the API server holds one that its schema cannot have let through; ``spec_error`` says why."""
    spec_error: str
    status: ModelAdapterStatus


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One adapter and all that concerns it."""

    adapter: Adapter
    pods: Sequence[PodFacts]
    """By name."""
    has_service: bool
    slices: Mapping[int, frozenset[str]]
    """Engine port → addresses in the EndpointSlice of that port; no entry: there is none."""
    slice_versions: Mapping[str, str] = field(default_factory=dict)
    """Name → resourceVersion of the EndpointSlices that are there."""
    refusal: Refusal | None = None
    """Since the last pass."""
    name_holder: str = ""
    """``namespace/name`` of an older adapter with this name; empty: the name is this one's."""
    called: Sequence[Called] = ()
    """Oldest first."""
    in_flight: frozenset[str] = frozenset()
    """UIDs of Pods with a load or unload of this adapter under way."""
    route_called: RouteCalled | None = None
    is_route_in_flight: bool = False
    now_s: float = 0.0
    """The monotonic clock of ``Listing.asked_at_s``."""

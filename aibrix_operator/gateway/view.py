"""What the gateway knows when a request comes: models, the engines that serve them, and what the engines say.

A :class:`Model` is replaced whole when one of its Pods, claims or adapters changes: a decision can hold on to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aibrix_operator.gateway.token_sizes import TokenSizes

if TYPE_CHECKING:
    from aibrix_operator.gateway.loads import Loads
    from aibrix_operator.gateway.profiles import ModelConfig


def incarnation(namespace: str, pod: str, port: int | str, uid: str) -> str:
    """Of an engine: what is remembered of its cache is not believed of a Pod that took the name."""
    return f"{namespace}/{pod}:{port}#{uid}"


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """One address that answers for one model: a Pod's port. Equal only to itself."""

    model: str
    namespace: str
    pod: str
    uid: str
    address: str
    """``ip:port``"""
    engine: str = "vllm"
    labels: Mapping[str, str] = field(default_factory=dict)
    """The Pod's."""
    ready_since_s: float = 0.0
    """Unix seconds of the Pod's Ready condition."""
    key: str = field(init=False)
    """``namespace/pod:port``: what counts and tables are kept by."""
    incarnation: str = field(init=False)
    """``key#uid``"""

    def __post_init__(self) -> None:
        port = self.address.rpartition(":")[2]
        object.__setattr__(self, "key", f"{self.namespace}/{self.pod}:{port}")
        object.__setattr__(self, "incarnation", incarnation(self.namespace, self.pod, port, self.uid))


@dataclass(frozen=True, slots=True)
class WakeTarget:
    """A sleeping engine that a request wants: the Pod to annotate, as it was read."""

    namespace: str
    pod: str
    uid: str
    resource_version: str
    claim: str
    model: str
    already_asked: bool
    """The Pod carries a wake request that has not been taken back."""
    by_request: bool = True
    """False: an older controller, whose runtime the gateway wakes itself, at ``runtime``."""
    runtime: str = ""
    """``http://ip:8080``"""


@dataclass(frozen=True, slots=True)
class Standing:
    """Why a known model has no routable engine, as the client is told."""

    state: str
    """``sleeping``, ``activating``, ``failed``, ``pending``, …: the route's, or the claim's phase in lower case."""
    reason: str = ""
    retry_after_s: int | None = None
    """None: asking again does not help until somebody changes the claim."""
    wake: WakeTarget | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """One name that clients may ask for."""

    name: str
    endpoints: tuple[Endpoint, ...] = ()
    """Routable now, ordered by ``key``."""
    engine: str = "vllm"
    config: ModelConfig | None = None
    """Its profiles: of the claim's annotation, else of the first Pod with a valid one."""
    standing: Standing | None = None
    """Set for a claim without a routable engine. None with no endpoints: its Pods are not ready."""
    base: str = ""
    """The model whose engine carries this one, for a LoRA adapter."""


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """What an engine said of itself when last scraped. None: it does not say, or too long ago."""

    at_s: float
    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    """0…1 of the KV cache on the card."""
    cpu_cache_usage: float | None = None
    gpu_busy_ratio: float | None = None
    utilization: float | None = None
    queue_mean_s: float | None = None
    prefill_mean_s: float | None = None
    decode_mean_s: float | None = None
    prompt_tokens_mean: float | None = None
    """Average prompt tokens of a request, over the engine's histogram."""
    generated_tokens_mean: float | None = None
    output_tokens_per_s: float | None = None
    """Exponentially weighted, time constant 10 s; an idle engine keeps its last."""


@dataclass(slots=True)
class View:
    """All that ``decide`` looks at. Its maps are changed between decisions, never during one."""

    loads: Loads
    models: dict[str, Model] = field(default_factory=dict)
    """Model name → model."""
    metrics: dict[str, EngineMetrics] = field(default_factory=dict)
    """``Endpoint.address`` → its engine's metrics."""
    token_sizes: TokenSizes = field(default_factory=TokenSizes)
    """What engines have counted of prompts."""
    is_synced: bool = False
    """The first lists are in: before that, an unknown model may only be one that was not read yet."""

"""The figures that strategies work with: the environment's defaults, and a profile's ``routingConfig`` over them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LoadBalanceKnobs:
    """``routingConfig.loadBalance``: the imbalance gate before every strategy, and the load-balance strategy."""

    imbalance_factor: float = 2.0
    imbalance_min_gap: int = 8
    queued_weight: float = 0.0
    kv_pressure_alpha: float = 2.0
    kv_critical_free: float = 0.10


@dataclass(frozen=True, slots=True)
class PrefixCacheKnobs:
    """``routingConfig.prefixCache``"""

    standard_deviation_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class PrebleKnobs:
    """``routingConfig.preble``"""

    target_gpu: str = "V100"
    decoding_length: int = 45


@dataclass(frozen=True, slots=True)
class VtcKnobs:
    """``routingConfig.vtc``"""

    max_pod_load: float = 100.0
    fairness_weight: float = 1.0
    utilization_weight: float = 1.0
    input_token_weight: float = 1.0
    output_token_weight: float = 2.0
    tracker_window_s: float = 300.0
    tracker_min_tokens: float = 1000.0
    tracker_max_tokens: float = 8000.0


@dataclass(frozen=True, slots=True)
class AutoBlendKnobs:
    """``routingConfig.autoBlend``: scorers added behind what was asked for."""

    load_scorer: str = "least-request-top-k"
    load_balance_weight: int = 1
    """0: nothing is blended in."""
    least_request_weight: int = 1
    prefix_cache_weight: int = 5
    prefix_cache_load_balance_weight: int = 4


@dataclass(frozen=True, slots=True)
class TopKKnobs:
    """least-request-top-k; the environment only."""

    k: int = 5
    epsilon: int = 4
    ramp_window_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Knobs:
    """All of them. One value a profile, made when the profile is read."""

    load_balance: LoadBalanceKnobs = field(default_factory=LoadBalanceKnobs)
    prefix_cache: PrefixCacheKnobs = field(default_factory=PrefixCacheKnobs)
    preble: PrebleKnobs = field(default_factory=PrebleKnobs)
    vtc: VtcKnobs = field(default_factory=VtcKnobs)
    auto_blend: AutoBlendKnobs = field(default_factory=AutoBlendKnobs)
    top_k: TopKKnobs = field(default_factory=TopKKnobs)

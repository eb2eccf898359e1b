"""The figures that strategies work with: the environment's defaults, and a profile's ``routingConfig`` over them.

A value that cannot be meant (not a number, out of its range) leaves what was there: one mistyped annotation must not
stop a model's traffic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final


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
class PrefixBalanceKnobs:
    """``routingConfig.prefixBalance``"""

    fading_s: float = 8.0
    """Time constant in which work that an engine was given is forgotten."""
    evenness: float = 40.0
    """How steep the price of work is: an engine that was given 1 % more than the mean takes this much per cent more."""


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
    """For Pods that answer on several ports; 0: off."""
    prefix_cache_weight: int = 5
    prefix_cache_load_balance_weight: int = 4


@dataclass(frozen=True, slots=True)
class TopKKnobs:
    """least-request-top-k; the environment only."""

    k: int = 5
    epsilon: int = 4
    ramp_window_s: float = 300.0


MOST_WEIGHT: Final = 1_000_000
"""Largest weight of one strategy in a text, as upstream limits it."""
LOAD_SCORERS: Final = ("least-request", "least-request-top-k", "load-balance")
"""Strategies that read load alone; one of them can be blended in."""

_UNITS_S: Final = {
    "ms": 0.001, "milliseconds": 0.001,
    "s": 1.0, "sec": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minutes": 60.0,
    "h": 3600.0, "hours": 3600.0,
}  # fmt: skip


def _number(value: object) -> float | None:
    """Of JSON or the environment. None: it is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _real(least: float, most: float = math.inf, *, above: bool = False) -> Callable[[object], float | None]:
    """A figure in [``least``, ``most``], or with ``above`` in (``least``, ``most``]."""

    def read(value: object) -> float | None:
        number = _number(value)
        if number is None or number > most or number < least or (above and number == least):
            return None
        return number

    return read


def _whole(least: int, most: int = MOST_WEIGHT) -> Callable[[object], int | None]:
    def read(value: object) -> int | None:
        number = _number(value)
        if number is None or not number.is_integer() or not least <= number <= most:
            return None
        return int(number)

    return read


def _one_of(*words: str) -> Callable[[object], str | None]:
    def read(value: object) -> str | None:
        return value.strip() if isinstance(value, str) and value.strip() in words else None

    return read


def _duration_s(value: object) -> float | None:
    """Seconds, or a figure with a unit such as ``5m``; 0 is allowed."""
    if isinstance(value, str):
        text = value.strip()
        for unit in ("ms", "s", "m", "h"):
            if text.endswith(unit):
                number = _real(0.0)(text[: -len(unit)])
                return None if number is None else number * _UNITS_S[unit]
    return _real(0.0)(value)


@dataclass(frozen=True, slots=True)
class _Knob:
    """One figure: where it stands in ``Knobs``, and by which names it is set. Empty: it has no such name."""

    group: str
    name: str
    read: Callable[[object], float | int | str | None]
    env: str
    member: str = ""


_GROUP_MEMBERS: Final = {
    "load_balance": "loadBalance",
    "prefix_cache": "prefixCache",
    "prefix_balance": "prefixBalance",
    "preble": "preble",
    "vtc": "vtc",
    "auto_blend": "autoBlend",
}
_LOAD: Final = "AIBRIX_LOAD_BALANCE_"
_BLEND: Final = "AIBRIX_ROUTING_AUTO_BLEND_"
_PREFIX_BALANCE: Final = "AIBRIX_ROUTING_PREFIX_BALANCE_"
_VTC: Final = "AIBRIX_ROUTER_VTC_BASIC_"
_TRACKER: Final = "AIBRIX_ROUTER_VTC_TOKEN_TRACKER_"
_TOP_K: Final = "AIBRIX_ROUTING_LEAST_REQUEST_TOP_K"
_KNOBS: Final = (
    _Knob("load_balance", "imbalance_factor", _real(0.0, above=True), _LOAD + "IMBALANCE_FACTOR", "imbalanceFactor"),
    _Knob("load_balance", "imbalance_min_gap", _whole(1), _LOAD + "IMBALANCE_MIN_GAP", "imbalanceMinGap"),
    _Knob("load_balance", "queued_weight", _real(0.0), _LOAD + "QUEUED_WEIGHT", "queuedWeight"),
    _Knob("load_balance", "kv_pressure_alpha", _real(0.0), _LOAD + "KV_PRESSURE_ALPHA", "kvPressureAlpha"),
    _Knob("load_balance", "kv_critical_free", _real(0.0, 1.0), _LOAD + "KV_CRITICAL_FREE", "kvCriticalFree"),
    _Knob(
        "prefix_cache", "standard_deviation_factor", _real(0.0),
        "AIBRIX_PREFIX_CACHE_STANDARD_DEVIATION_FACTOR", "standardDeviationFactor",
    ),
    _Knob("prefix_balance", "fading_s", _real(0.0, above=True), _PREFIX_BALANCE + "FADING_SECONDS", "fadingSeconds"),
    _Knob("prefix_balance", "evenness", _real(0.0, 500.0), _PREFIX_BALANCE + "EVENNESS", "evenness"),
    _Knob("preble", "target_gpu", _one_of("A6000", "V100"), "AIBRIX_PREBLE_TARGET_GPU", "targetGPU"),
    _Knob("preble", "decoding_length", _whole(0), "AIBRIX_PREBLE_DECODING_LENGTH", "decodingLength"),
    _Knob("vtc", "max_pod_load", _real(0.0, above=True), _VTC + "MAX_POD_LOAD", "maxPodLoad"),
    _Knob("vtc", "fairness_weight", _real(0.0), _VTC + "FAIRNESS_WEIGHT", "fairnessWeight"),
    _Knob("vtc", "utilization_weight", _real(0.0), _VTC + "UTILIZATION_WEIGHT", "utilizationWeight"),
    _Knob("vtc", "input_token_weight", _real(0.0), _VTC + "INPUT_TOKEN_WEIGHT", "inputTokenWeight"),
    _Knob("vtc", "output_token_weight", _real(0.0), _VTC + "OUTPUT_TOKEN_WEIGHT", "outputTokenWeight"),
    _Knob("vtc", "tracker_min_tokens", _real(0.0), _TRACKER + "MIN_TOKENS", "tokenTrackerMinTokens"),
    _Knob("vtc", "tracker_max_tokens", _real(0.0), _TRACKER + "MAX_TOKENS", "tokenTrackerMaxTokens"),
    _Knob("auto_blend", "load_scorer", _one_of(*LOAD_SCORERS), _BLEND + "LOAD_SCORER", "loadScorer"),
    _Knob("auto_blend", "load_balance_weight", _whole(0), _BLEND + "LOAD_BALANCE_WEIGHT", "loadBalanceWeight"),
    _Knob("auto_blend", "least_request_weight", _whole(0), _BLEND + "LEAST_REQUEST_WEIGHT", "leastRequestWeight"),
    _Knob("auto_blend", "prefix_cache_weight", _whole(1), _BLEND + "PREFIX_CACHE_WEIGHT", "prefixCacheWeight"),
    _Knob(
        "auto_blend", "prefix_cache_load_balance_weight", _whole(0),
        _BLEND + "PREFIX_CACHE_LOAD_BALANCE_WEIGHT", "prefixCacheLoadBalanceWeight",
    ),
    _Knob("top_k", "k", _whole(1), _TOP_K),
    _Knob("top_k", "epsilon", _whole(0), _TOP_K + "_EPSILON"),
    _Knob("top_k", "ramp_window_s", _duration_s, _TOP_K + "_RAMP_WINDOW"),
)  # fmt: skip


def _window_s(size: object, unit: object, present_s: float) -> float:
    """vtc's window is set by a size and a unit; either alone keeps the other at its default (5 minutes)."""
    if size is None and unit is None:
        return present_s
    number = _real(0.0, above=True)(5 if size is None else size)
    scale = _UNITS_S.get(unit.strip().lower()) if isinstance(unit, str) else (60.0 if unit is None else None)
    return present_s if number is None or scale is None else number * scale


@dataclass(frozen=True, slots=True)
class Knobs:
    """All of them. One value a profile, made when the profile is read."""

    load_balance: LoadBalanceKnobs = field(default_factory=LoadBalanceKnobs)
    prefix_cache: PrefixCacheKnobs = field(default_factory=PrefixCacheKnobs)
    prefix_balance: PrefixBalanceKnobs = field(default_factory=PrefixBalanceKnobs)
    preble: PrebleKnobs = field(default_factory=PrebleKnobs)
    vtc: VtcKnobs = field(default_factory=VtcKnobs)
    auto_blend: AutoBlendKnobs = field(default_factory=AutoBlendKnobs)
    top_k: TopKKnobs = field(default_factory=TopKKnobs)

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Knobs:
        """The defaults of this process."""
        found: dict[str, dict[str, float | int | str]] = {}
        for knob in _KNOBS:
            value = knob.read(environ[knob.env]) if knob.env in environ else None
            if value is not None:
                found.setdefault(knob.group, {})[knob.name] = value
        size, unit = environ.get(_TRACKER + "WINDOW_SIZE"), environ.get(_TRACKER + "TIME_UNIT")
        return cls()._with(found, size, unit)

    def with_config(self, config: Mapping[str, object]) -> Knobs:
        """A profile's ``routingConfig`` over these. Members that are not known are ignored."""
        found: dict[str, dict[str, float | int | str]] = {}
        objects = {group: config.get(member) for group, member in _GROUP_MEMBERS.items()}
        for knob in _KNOBS:
            members = objects.get(knob.group)
            value = knob.read(members.get(knob.member)) if isinstance(members, Mapping) and knob.member else None
            if value is not None:
                found.setdefault(knob.group, {})[knob.name] = value
        vtc = objects["vtc"] if isinstance(objects["vtc"], Mapping) else {}
        return self._with(found, vtc.get("tokenTrackerWindowSize"), vtc.get("tokenTrackerTimeUnit"))

    def _with(self, found: Mapping[str, dict[str, float | int | str]], size: object, unit: object) -> Knobs:
        changes = {group: replace(getattr(self, group), **values) for group, values in found.items()}
        vtc = changes.get("vtc", self.vtc)
        window_s = _window_s(size, unit, vtc.tracker_window_s)
        if window_s != vtc.tracker_window_s:
            changes["vtc"] = replace(vtc, tracker_window_s=window_s)
        return replace(self, **changes) if changes else self

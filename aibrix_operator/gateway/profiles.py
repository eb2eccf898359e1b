"""A model's configuration: the annotation ``model.aibrix.ai/config``, and which of its profiles a request gets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import orjson

from aibrix_operator.gateway.knobs import Knobs

DEFAULT: Final = "default"
AUTO: Final = "auto"
CAPPED_STRATEGY: Final = "least-request"
"""Of a profile with a cap for each replica, whatever it declares."""
TEXTS_KEPT: Final = 4096
"""Annotations whose reading is remembered."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Which requests a profile is for, when a client leaves the choice to us. None: no such hint."""

    prompt_tokens_gte: int | None = None
    prompt_tokens_lt: int | None = None
    max_tokens_gte: int | None = None
    max_tokens_lt: int | None = None

    def count(self) -> int:
        """How many there are."""
        return sum(hint is not None for hint in self._all())

    def hold(self, prompt_tokens: int | None, max_tokens: int | None) -> bool:
        """Whether all do. What is not known (None) meets no hint about it."""
        return _is_within(prompt_tokens, self.prompt_tokens_gte, self.prompt_tokens_lt) and _is_within(
            max_tokens, self.max_tokens_gte, self.max_tokens_lt
        )

    def rank(self) -> tuple[float, float, float, float, float]:
        """Among hints that hold, the least wins: most hints; then the narrower bounds, in the order they are named."""
        return (
            -self.count(),
            -_or(self.prompt_tokens_gte, -math.inf),
            _or(self.prompt_tokens_lt, math.inf),
            -_or(self.max_tokens_gte, -math.inf),
            _or(self.max_tokens_lt, math.inf),
        )

    def _all(self) -> tuple[int | None, ...]:
        return self.prompt_tokens_gte, self.prompt_tokens_lt, self.max_tokens_gte, self.max_tokens_lt


def _or(hint: int | None, absent: float) -> float:
    return absent if hint is None else hint


def _is_within(value: int | None, least: int | None, above: int | None) -> bool:
    if least is None and above is None:
        return True
    return value is not None and (least is None or value >= least) and (above is None or value < above)


@dataclass(frozen=True, slots=True)
class Profile:
    """One named profile. What is absent is None."""

    name: str
    strategy: str | None = None
    requests_per_second: int | None = None
    requests_per_second_per_replica: float | None = None
    requests_inflight: int | None = None
    wake_wait_s: float = 0.0
    """How long a request may wait for its sleeping model; 0: it is refused at once."""
    knobs: Knobs = field(default_factory=Knobs)
    hints: Hints = Hints()

    @property
    def cap_is_below_rate(self) -> bool:
        """Engines that take a second or longer for a request never get as many as the rate grants."""
        cap, rate = self.requests_inflight, self.requests_per_second_per_replica
        return cap is not None and rate is not None and cap < rate


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The whole document."""

    locked_strategy: str | None = None
    default_profile: str = DEFAULT
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    def default(self) -> Profile | None:
        """The one that ``defaultProfile`` names, else ``default``."""
        return self.profiles.get(self.default_profile) or self.profiles.get(DEFAULT)

    def by_hints(self, prompt_tokens: int | None, max_tokens: int | None) -> Profile | None:
        """The profile whose hints fit a request best; names settle what is equal. None: none fits."""
        fitting = [
            profile
            for profile in self.profiles.values()
            if profile.hints.count() and profile.hints.hold(prompt_tokens, max_tokens)
        ]
        return min(fitting, key=lambda profile: (profile.hints.rank(), profile.name), default=None)


def reader(default_knobs: Knobs) -> Callable[[str], ModelConfig | None]:
    """``parse_config`` that gives equal texts the same value: a thousand Pods carry one text."""

    @lru_cache(maxsize=TEXTS_KEPT)
    def read(text: str) -> ModelConfig | None:
        return parse_config(text, default_knobs)

    return read


def parse_config(text: str, default_knobs: Knobs) -> ModelConfig | None:
    """The annotation's value. None: it is no JSON object, or neither has profiles nor locks a strategy.

    A member that cannot be used counts as absent: a slip in one figure must not switch a model's routing off.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict):
        return None
    locked, profiles = _text(document, "lockedRoutingStrategy"), document.get("profiles")
    if not isinstance(profiles, dict):
        if locked is None:
            return None
        profiles = {}
    return ModelConfig(
        locked_strategy=locked,
        default_profile=_text(document, "defaultProfile") or DEFAULT,
        profiles={
            name: _profile(name, members, default_knobs)
            for name, members in profiles.items()
            if isinstance(members, dict)
        },
    )


def _profile(name: str, members: Mapping[str, Any], default_knobs: Knobs) -> Profile:
    given = members.get("routingConfig")
    config: Mapping[str, Any] = given if isinstance(given, dict) else {}
    per_replica = _above_0(members, "requestsPerSecondPerReplica")
    inflight = _whole(members, "requestsInflight", 1)
    has_cap = per_replica is not None or inflight is not None
    return Profile(
        name=name,
        strategy=CAPPED_STRATEGY if has_cap else _text(members, "routingStrategy"),
        requests_per_second=_whole(members, "requestsPerSecond", 1),
        requests_per_second_per_replica=per_replica,
        requests_inflight=inflight,
        wake_wait_s=_above_0(members, "wakeWaitSeconds") or 0.0,
        knobs=default_knobs.with_config(config),
        hints=Hints(
            _whole(config, "promptTokensGte"),
            _whole(config, "promptTokensLt"),
            _whole(config, "maxTokensGte"),
            _whole(config, "maxTokensLt"),
        ),
    )


def _text(members: Mapping[str, Any], name: str) -> str | None:
    value = members.get(name)
    return (value.strip() or None) if isinstance(value, str) else None


def _above_0(members: Mapping[str, Any], name: str) -> float | None:
    value = members.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if value > 0 else None


def _whole(members: Mapping[str, Any], name: str, least: int = 0) -> int | None:
    value = members.get(name)
    return value if type(value) is int and value >= least else None

"""A model's configuration: the annotation ``model.aibrix.ai/config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aibrix_operator.gateway.knobs import Knobs


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


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The whole document."""

    locked_strategy: str | None = None
    default_profile: str = "default"
    profiles: Mapping[str, Profile] = field(default_factory=dict)

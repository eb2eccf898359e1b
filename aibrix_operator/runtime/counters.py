"""What the sidecar counts over its life, for ``metrics.py``. Counters stay when an engine goes; its gauges do not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from aibrix_operator.runtime.lifecycle import Adoption
from aibrix_operator.runtime.operations import Action


class Result(StrEnum):
    """How an operation ended."""

    APPLIED = "applied"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(slots=True)
class Counters:
    """Plain numbers, changed on the event loop only."""

    restart_attempts: Counter[str] = field(default_factory=Counter)
    """model → relaunches tried."""
    budgets_exhausted: Counter[str] = field(default_factory=Counter)
    """model → times it failed for good."""
    adoptions: Counter[Adoption] = field(default_factory=Counter)
    kv_limits: Counter[tuple[str, Result]] = field(default_factory=Counter)
    lifecycle: Counter[tuple[str, Action, Result]] = field(default_factory=Counter)
    """Sleeps and wakes."""
    lifecycle_s: dict[tuple[str, Action, Result], float] = field(default_factory=dict)
    """Seconds spent on them."""
    kv_limit_requested_bytes: dict[str, int] = field(default_factory=dict)
    kv_limit_applied_bytes: dict[str, int] = field(default_factory=dict)

    def lifecycle_ended(self, model_name: str, action: Action, result: Result, duration_s: float) -> None:
        """Count one sleep or wake."""
        key = (model_name, action, result)
        self.lifecycle[key] += 1
        self.lifecycle_s[key] = self.lifecycle_s.get(key, 0.0) + duration_s

    def forget_gauges(self, model_name: str) -> None:
        """The engine's record is gone."""
        self.kv_limit_requested_bytes.pop(model_name, None)
        self.kv_limit_applied_bytes.pop(model_name, None)

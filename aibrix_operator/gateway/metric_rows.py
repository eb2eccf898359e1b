"""What is counted of one model, or of one model on one Pod. Plain figures: a request pays a few additions for them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final


class Buckets:
    """A counter a bucket, as upstream names them: ``[lower, upper)``, the last without an end."""

    __slots__ = ("_bounds", "counts", "names")

    def __init__(self, bounds: Sequence[int], unit: str) -> None:
        self._bounds = tuple(bounds)
        self.names = (*(f"{a}-{b}{unit}" for a, b in pairwise((0, *bounds))), f"{bounds[-1]}{unit}+")
        self.counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        """Count ``value`` in its bucket."""
        self.counts[bisect_right(self._bounds, value)] += 1


class Seconds:
    """A histogram as Prometheus has it: a bucket holds what is at most its bound."""

    __slots__ = ("_bounds_s", "_counts", "total_s")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = tuple(bounds_s)
        self._counts = [0] * (len(bounds_s) + 1)
        self.total_s = 0.0

    def add(self, value_s: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(self._bounds_s, value_s)] += 1
        self.total_s += value_s

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, how many at most that), in order."""
        bounds = [*(str(bound) for bound in self._bounds_s), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True))


TOKEN_BOUNDS: Final = tuple(256 << n for n in range(8))
TIME_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
TOTAL_BOUNDS_MS: Final = (100, 250, 500, 1000, 5000, 20000, 60000)

DECISION_BOUNDS_S: Final = (
    *(0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002),
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)
FIRST_BYTE_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
DURATION_BOUNDS_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class Row:
    """The figures that have the same model, and the same Pod where Pods are told apart."""

    __slots__ = (
        *("completion_tokens", "decision_s", "decode_ms", "duration_s", "first_byte_s", "in_flight", "input_tokens"),
        *("labels", "outcomes", "output_tokens", "prompt_tokens", "requests", "routing_ms", "slow_first_tokens"),
        *("touched_s", "tpot_ms", "total_ms", "ttft_ms", "with_usage", "without_usage"),
    )

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels
        """Values, in the order of the page's label names."""
        self.requests = 0
        self.in_flight = 0
        self.outcomes: dict[tuple[bool, str, int], int] = {}
        """(is success, status, status code) → requests"""
        self.input_tokens = 0
        self.output_tokens = 0
        self.with_usage = 0
        self.without_usage = 0
        self.slow_first_tokens = 0
        self.prompt_tokens = Buckets(TOKEN_BOUNDS, "")
        self.completion_tokens = Buckets(TOKEN_BOUNDS, "")
        self.routing_ms = Buckets(TIME_BOUNDS_MS, "ms")
        self.ttft_ms = Buckets(TIME_BOUNDS_MS, "ms")
        self.tpot_ms = Buckets(TIME_BOUNDS_MS, "ms")
        self.decode_ms = Buckets(TIME_BOUNDS_MS, "ms")
        self.total_ms = Buckets(TOTAL_BOUNDS_MS, "ms")
        self.decision_s = Seconds(DECISION_BOUNDS_S)
        self.first_byte_s = Seconds(FIRST_BYTE_BOUNDS_S)
        self.duration_s = Seconds(DURATION_BOUNDS_S)
        self.touched_s = 0.0

    def count_outcome(self, is_success: bool, status: str, status_code: int) -> None:
        """One request ended so."""
        key = (is_success, status, status_code)
        self.outcomes[key] = self.outcomes.get(key, 0) + 1

    def decided(self, decision_s: float) -> None:
        """One request was answered by us: forwarded or refused."""
        self.requests += 1
        self.decision_s.add(decision_s)
        self.routing_ms.add(decision_s * 1000)

    def used(self, prompt: int, completion: int) -> None:
        """The engine told the tokens of a request."""
        self.with_usage += 1
        self.input_tokens += prompt
        self.output_tokens += completion
        self.prompt_tokens.add(prompt)
        self.completion_tokens.add(completion)

    def answered(self, duration_s: float, first_byte_s: float | None, completion: int, slow_from_s: float) -> None:
        """The times of an answer. ``completion``: tokens told by the engine, 0 where it said nothing."""
        self.duration_s.add(duration_s)
        self.total_ms.add(duration_s * 1000)
        if first_byte_s is None:
            return
        self.first_byte_s.add(first_byte_s)
        self.ttft_ms.add(first_byte_s * 1000)
        if first_byte_s > slow_from_s:
            self.slow_first_tokens += 1
        decode_s = max(0.0, duration_s - first_byte_s)
        self.decode_ms.add(decode_s * 1000)
        if completion > 1:
            self.tpot_ms.add(decode_s * 1000 / (completion - 1))

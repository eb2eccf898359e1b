"""``load-balance``: the shortest expected wait, with a penalty for a KV cache that runs full."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick
from aibrix_operator.gateway.view import EngineMetrics

UNKNOWN_RATE = 1.0
"""Tokens per second, where no engine has said its rate: then requests alone decide."""


class LoadBalance(choosing.Stateless):
    """(running + λ·queued) / rate × (1 + α·(1 − free)²); infinite below the critical share of free KV cache.

    Where it is infinite for all, or equal, the emptiest caches decide; it never fails.
    """

    name = "load-balance"
    lower_is_better = True

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        scores = self.scores(ask)
        least = min(score for score in scores if score is not None)
        near = [place for place, score in enumerate(scores) if score == least]
        if len(near) == 1:
            return Pick(ask.candidates[near[0]])
        used = [_used(ask.metrics.get(ask.candidates[place].address)) for place in near]
        emptiest = [place for place, share in zip(near, used, strict=True) if share == min(used)]
        return Pick(ask.candidates[emptiest[int(ask.random.random() * len(emptiest))]])

    def scores(self, ask: Ask) -> Sequence[float | None]:
        """Seconds of waiting per token of answer, more or less."""
        read = [ask.metrics.get(endpoint.address) for endpoint in ask.candidates]
        rates = [_rate(metrics) for metrics in read]
        said = [rate for rate in rates if rate is not None]
        usual = sum(said) / len(said) if said else UNKNOWN_RATE
        knobs = ask.knobs.load_balance
        scores: list[float | None] = []
        for endpoint, metrics, rate in zip(ask.candidates, read, rates, strict=True):
            usage = (metrics.kv_cache_usage if metrics is not None else None) or 0.0
            # Rounded as the figures are: 1 - 0.9 is a little below 0.1, which is usable.
            free = round(min(1.0, max(0.0, 1.0 - usage)), 9)
            if free < knobs.kv_critical_free:
                scores.append(math.inf)
                continue
            queued = (metrics.waiting if metrics is not None else None) or 0.0
            waiting = ask.loads.count(endpoint) + knobs.queued_weight * queued
            scores.append(waiting / (rate or usual) * (1 + knobs.kv_pressure_alpha * (1 - free) ** 2))
        return scores


def _rate(metrics: EngineMetrics | None) -> float | None:
    """Output tokens per second; None: not known."""
    rate = metrics.output_tokens_per_s if metrics is not None else None
    return rate if rate is not None and rate > 0 else None


def _used(metrics: EngineMetrics | None) -> float:
    if metrics is None:
        return 0.0
    return (metrics.kv_cache_usage or 0.0) + (metrics.cpu_cache_usage or 0.0)

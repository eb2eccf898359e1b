"""``throughput``: the engine whose requests are the smallest."""

from __future__ import annotations

from aibrix_operator.gateway.strategies.engine_figures import LowestFigure
from aibrix_operator.gateway.view import EngineMetrics


class Throughput(LowestFigure):
    """Average tokens of a request there, prompts weighed double."""

    name = "throughput"

    def figure(self, metrics: EngineMetrics) -> float | None:
        """See ``LowestFigure``."""
        if metrics.prompt_tokens_mean is None or metrics.generated_tokens_mean is None:
            return None
        return 2 * metrics.prompt_tokens_mean + metrics.generated_tokens_mean

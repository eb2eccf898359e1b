"""``least-gpu-cache``: the engine with the emptiest KV cache on its card."""

from __future__ import annotations

from aibrix_operator.gateway.strategies.engine_figures import LowestFigure
from aibrix_operator.gateway.view import EngineMetrics


class LeastGpuCache(LowestFigure):
    """Used share of the KV cache on the card."""

    name = "least-gpu-cache"

    def figure(self, metrics: EngineMetrics) -> float | None:
        """See ``LowestFigure``."""
        return metrics.kv_cache_usage

"""``least-kv-cache``: the engine with the emptiest KV caches, on the card and in host memory."""

from __future__ import annotations

from aibrix_operator.gateway.strategies.engine_figures import LowestFigure
from aibrix_operator.gateway.view import EngineMetrics


class LeastKvCache(LowestFigure):
    """Used shares of both caches together; an engine has to say both."""

    name = "least-kv-cache"

    def figure(self, metrics: EngineMetrics) -> float | None:
        """See ``LowestFigure``."""
        if metrics.kv_cache_usage is None or metrics.cpu_cache_usage is None:
            return None
        return metrics.kv_cache_usage + metrics.cpu_cache_usage

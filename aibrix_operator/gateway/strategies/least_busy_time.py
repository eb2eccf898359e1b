"""``least-busy-time``: the engine whose card computes the smallest part of the time."""

from __future__ import annotations

from aibrix_operator.gateway.strategies.engine_figures import LowestFigure
from aibrix_operator.gateway.view import EngineMetrics


class LeastBusyTime(LowestFigure):
    """Share of the time that the card was busy. Engines mostly do not say it, and then the choice is random."""

    name = "least-busy-time"

    def figure(self, metrics: EngineMetrics) -> float | None:
        """See ``LowestFigure``."""
        return metrics.gpu_busy_ratio

"""``least-utilization``: the engine that says it is the least utilised."""

from __future__ import annotations

from aibrix_operator.gateway.strategies.engine_figures import LowestFigure
from aibrix_operator.gateway.view import EngineMetrics


class LeastUtilization(LowestFigure):
    """The engine's own figure of its utilisation."""

    name = "least-utilization"

    def figure(self, metrics: EngineMetrics) -> float | None:
        """See ``LowestFigure``."""
        return metrics.utilization

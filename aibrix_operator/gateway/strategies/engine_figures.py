"""Strategies that read one figure of the engines and take the lowest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick
from aibrix_operator.gateway.view import EngineMetrics


class LowestFigure(choosing.Stateless, ABC):
    """Engines that do not say the figure are left out; when none says it, the choice is random and counted."""

    name: str
    lower_is_better = True

    @abstractmethod
    def figure(self, metrics: EngineMetrics) -> float | None:
        """Of one engine. None: it does not say."""

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        return choosing.lowest(ask, self.scores(ask))

    def scores(self, ask: Ask) -> Sequence[float | None]:
        """See ``Scorer``."""
        read = [ask.metrics.get(endpoint.address) for endpoint in ask.candidates]
        return [None if metrics is None else self.figure(metrics) for metrics in read]

"""prefix-cache's metrics, under AIBrix's names.

AIBrix's counter of routing errors has no counterpart: matching cannot fail here. The time that routing takes is that of
the whole decision, ``aibrix_gateway_decision_seconds``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from aibrix_operator.gateway.prefix_figures import PrefixFigures
from aibrix_operator.gateway.view import Model

_PREFIX: Final = "aibrix_prefix_cache"


class PrefixPage:
    """A collector."""

    def __init__(self, figures: PrefixFigures, models: Callable[[], Mapping[str, Model]]) -> None:
        """``models``: those of the view; figures of others go."""
        self._figures = figures
        self._models = models

    def collect(self) -> Iterable[Metric]:
        """One scrape."""
        figures = self._figures
        figures.keep(frozenset(self._models()))
        text = "Requests by how much of their prompt the chosen engine had."
        labels = ("model", "match_percent_bucket", "using_kv_sync")
        decisions = CounterMetricFamily(f"{_PREFIX}_routing_decisions", text, labels=labels)
        for (model, bucket), count in figures.decisions.items():
            decisions.add_metric((model, bucket, "false"), count)
        yield decisions
        text = "1 for a model whose prompts are in the table."
        status = GaugeMetricFamily(f"{_PREFIX}_indexer_status", text, labels=("model", "indexer_type"))
        for model in {model for model, _ in figures.decisions}:
            status.add_metric((model, "local"), 1)
        yield status
        text = "Requests by why they went where they went."
        selections = CounterMetricFamily(f"{_PREFIX}_routing_selection", text, labels=("selection",))
        for selection, count in figures.selections.items():
            selections.add_metric((selection,), count)
        yield selections
        text = "Requests for which only the least loaded engines were left to choose from."
        yield CounterMetricFamily(f"{_PREFIX}_load_imbalance", text, value=figures.imbalances)

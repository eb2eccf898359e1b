"""How warmups stand, read off the cache when somebody scrapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from aibrix_operator.controller.cache import Cache
from aibrix_operator.modelwarmup.observe import phase_of

PREFIX = "aibrix_modelwarmup"
_NODES = {"desired": "desiredNodes", "active": "activeNodes", "succeeded": "succeededNodes", "failed": "failedNodes"}


class Gauges(Collector):
    """Of all warmups, also on replicas that do not lead."""

    def __init__(self, warmups: Cache) -> None:
        self._warmups = warmups

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect before the cache is filled, and so nothing at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """By namespace."""
        phases: Counter[tuple[str, str]] = Counter()
        nodes: Counter[tuple[str, str]] = Counter()
        fetched: Counter[str] = Counter()
        for obj in self._warmups.values():
            namespace, status = obj["metadata"].get("namespace", ""), obj.get("status") or {}
            phases[namespace, str(phase_of(obj) or "Pending")] += 1
            fetched[namespace] += status.get("fetchedBytes") or 0
            for state, field in _NODES.items():
                nodes[namespace, state] += status.get(field) or 0
        warmups = GaugeMetricFamily(f"{PREFIX}_warmups", "Warmups by phase.", labels=("namespace", "phase"))
        for labels, count in sorted(phases.items()):
            warmups.add_metric(labels, count)
        of_nodes = GaugeMetricFamily(f"{PREFIX}_nodes", "Nodes of warmups by state.", labels=("namespace", "state"))
        for labels, count in sorted(nodes.items()):
            of_nodes.add_metric(labels, count)
        of_bytes = GaugeMetricFamily(f"{PREFIX}_fetched_bytes", "Weights fetched onto nodes.", labels=("namespace",))
        for namespace, count in sorted(fetched.items()):
            of_bytes.add_metric((namespace,), count)
        yield from (warmups, of_nodes, of_bytes)

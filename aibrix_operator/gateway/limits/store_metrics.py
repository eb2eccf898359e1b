"""Whether limits are shared now, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from aibrix_operator.gateway.limits.store import Standing
from aibrix_operator.gateway.limits.users import Policy

_PREFIX: Final = "aibrix_gateway_redis"


class StoreFigures:
    """A collector; reads the store when somebody scrapes."""

    def __init__(self, standing: Callable[[], Standing], others: Callable[[], int], policy: Policy) -> None:
        """``others``: how many other gateways were alive in the last exchange."""
        self._standing = standing
        self._others = others
        self._policy = policy

    def collect(self) -> Iterable[Metric]:
        """One scrape."""
        standing = self._standing()
        text = "1 while Redis answers, 0 while limits follow the policy for its absence."
        up = GaugeMetricFamily(f"{_PREFIX}_up", text, labels=("policy",))
        up.add_metric((self._policy,), int(standing.is_up))
        yield up
        text = "How often Redis was lost. Absent at the start counts."
        yield CounterMetricFamily(f"{_PREFIX}_outages", text, value=standing.outages)
        text = "Other gateways whose counts are known."
        yield GaugeMetricFamily("aibrix_gateway_peers", text, value=self._others())

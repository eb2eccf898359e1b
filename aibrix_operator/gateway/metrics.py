"""The gateway's metrics: AIBrix's names and labels, and real histograms beside its bucket counters.

Figures are plain numbers that a scrape turns into Prometheus' text. Only models that the view knows, and one row for
all other requests, become labels; Pods do where asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from aibrix_operator.gateway.accounting import Account
from aibrix_operator.gateway.leases import Lease
from aibrix_operator.gateway.limits.limiter import Limit
from aibrix_operator.gateway.metric_page import Figures, families
from aibrix_operator.gateway.metric_rows import Row
from aibrix_operator.gateway.settlement import Ended
from aibrix_operator.gateway.view import Endpoint, Model

UNKNOWN_MODEL: Final = "unknown"
"""The label of requests that name no model that we know: what clients make up becomes no label."""
REFUSED_BY_HEADERS: Final = "request_headers_fail"
REFUSED_BY_BODY: Final = "request_body_fail"
EXPIRED: Final = "lease_expired"
EXPIRED_CODE: Final = 500
SLOW_FIRST_TOKEN_S: Final = 1.0
IDLE_POD_S: Final = 600.0
"""A Pod that is gone keeps its figures for so long, so that a scrape finds the last of them."""

_MODEL_LABELS: Final = ("model", "gateway_pod")
_POD_LABELS: Final = (
    *("namespace", "pod", "model", "engine_type", "roleset", "role", "role_replica_index", "gateway_pod"),
)
_ROLE_LABELS: Final = ("roleset-name", "role-name", "role-replica-index")


class Metrics:
    """All metrics of one gateway, in a registry of their own that others may add to."""

    def __init__(
        self,
        models: Callable[[], Mapping[str, Model]],
        gateway: str,
        *,
        by_pod: bool = False,
        slow_first_token_s: float = SLOW_FIRST_TOKEN_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``models``: those of the view, name → model. ``gateway``: the value of ``gateway_pod``."""
        self.registry = CollectorRegistry(auto_describe=False)
        self._models = models
        self._gateway = gateway
        self._by_pod = by_pod
        self._slow_first_token_s = slow_first_token_s
        self._clock = clock
        self._rows: dict[tuple[str, str], Row] = {}
        self._fallbacks: dict[tuple[str, str], int] = {}
        self._limits: dict[tuple[str, Limit], int] = {}
        self._expired = 0
        self._unknown_leases = 0
        self.registry.register(self)

    def admitted(self, lease: Lease, decision_s: float) -> None:
        """A request was forwarded. ``decision_s``: reading, deciding and admitting it, without what it was held for."""
        row = self._row(lease.forward.model.name, lease.endpoint)
        row.in_flight += 1
        row.decided(decision_s)
        reason = lease.forward.fallback
        if reason is not None:
            key = (lease.forward.model.name, reason)
            self._fallbacks[key] = self._fallbacks.get(key, 0) + 1

    def refused(
        self, model: str, status_code: int, decision_s: float, limit: Limit | None = None, status: str | None = None
    ) -> None:
        """A request was answered by us. ``status``: the failure's, where it is not that of its phase."""
        name = model if model in self._models() else UNKNOWN_MODEL
        row = self._row(name, None)
        row.decided(decision_s)
        if status is None:
            by_headers = status_code == 401 or limit in (Limit.RPM, Limit.TPM)
            status = REFUSED_BY_HEADERS if by_headers else REFUSED_BY_BODY
        row.count_outcome(False, status, status_code)
        if limit is not None:
            self._limits[name, limit] = self._limits.get((name, limit), 0) + 1

    def ended(self, lease: Lease, ended: Ended, account: Account) -> None:
        """A forwarded request ended."""
        row = self._row(lease.forward.model.name, lease.endpoint)
        row.in_flight -= 1
        row.count_outcome(account.is_success, account.status, account.status_code)
        usage = account.usage
        told = usage is not None and not usage.is_estimate
        if usage is not None and told:
            row.used(usage.prompt, usage.completion)
        elif account.is_success:
            row.without_usage += 1
        completion = usage.completion if usage is not None and told else 0
        row.answered(ended.duration_s, ended.first_byte_s, completion, self._slow_first_token_s)

    def expired(self, lease: Lease) -> None:
        """Nobody told how a forwarded request ended."""
        row = self._row(lease.forward.model.name, lease.endpoint)
        row.in_flight -= 1
        row.count_outcome(False, EXPIRED, EXPIRED_CODE)
        self._expired += 1

    def unknown_lease(self) -> None:
        """Envoy's log told of a lease that is not open."""
        self._unknown_leases += 1

    def collect(self) -> Iterable[Metric]:
        """One scrape."""
        self._forget()
        figures = Figures(
            labels=_POD_LABELS if self._by_pod else _MODEL_LABELS,
            rows=list(self._rows.values()),
            gateway=self._gateway,
            by_pod=self._by_pod,
            replicas={name: len(model.endpoints) for name, model in self._models().items()},
            fallbacks=dict(self._fallbacks),
            limits=dict(self._limits),
            expired=self._expired,
            unknown_leases=self._unknown_leases,
            slow_first_token_s=self._slow_first_token_s,
        )
        return families(figures)

    def _row(self, model: str, endpoint: Endpoint | None) -> Row:
        key = (model, endpoint.key if self._by_pod and endpoint is not None else "")
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Row(self._labels(model, endpoint))
        if self._by_pod:
            row.touched_s = self._clock()
        return row

    def _labels(self, model: str, endpoint: Endpoint | None) -> tuple[str, ...]:
        if not self._by_pod:
            return (model, self._gateway)
        if endpoint is None:
            return ("", "", model, "", "", "", "", self._gateway)
        roles = (endpoint.labels.get(name, "") for name in _ROLE_LABELS)
        return (endpoint.namespace, endpoint.pod, model, endpoint.engine, *roles, self._gateway)

    def _forget(self) -> None:
        """Rows of models that are gone, and of Pods that are gone for long; never those with requests on their way."""
        models = self._models()
        cut_s = self._clock() - IDLE_POD_S
        for (name, pod), row in list(self._rows.items()):
            model = models.get(name)
            if row.in_flight or name == UNKNOWN_MODEL:
                continue
            is_idle = bool(pod) and row.touched_s < cut_s
            if model is None or (is_idle and all(endpoint.key != pod for endpoint in model.endpoints)):
                del self._rows[name, pod]
        self._fallbacks = {key: count for key, count in self._fallbacks.items() if key[0] in models}
        self._limits = {key: n for key, n in self._limits.items() if key[0] in models or key[0] == UNKNOWN_MODEL}

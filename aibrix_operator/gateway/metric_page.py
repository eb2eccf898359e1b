"""The gateway's figures as Prometheus' families. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from aibrix_operator.gateway.limits.limiter import Limit
from aibrix_operator.gateway.metric_rows import Buckets, Row, Seconds

_PREFIX: Final = "aibrix_gateway"


@dataclass(frozen=True, slots=True)
class Figures:
    """All of one scrape."""

    labels: Sequence[str]
    """Names of the labels that ``Row.labels`` gives the values of."""
    rows: Sequence[Row]
    gateway: str
    by_pod: bool
    replicas: Mapping[str, int]
    """Model → routable endpoints."""
    fallbacks: Mapping[tuple[str, str], int]
    """(model, reason) → requests"""
    limits: Mapping[tuple[str, Limit], int]
    """(model, limit) → refusals"""
    expired: int
    unknown_leases: int
    slow_first_token_s: float

    @property
    def pod_place(self) -> int | None:
        """Where the Pod's name is among the values, if it is."""
        return self.labels.index("pod") if self.by_pod else None

    def model_of(self, row: Row) -> str:
        """Its label."""
        return row.labels[self.labels.index("model")]

    def by_model(self, read: Callable[[Row], int]) -> dict[str, int]:
        """Sums over the Pods of each model."""
        out: dict[str, int] = {}
        for row in self.rows:
            name = self.model_of(row)
            out[name] = out.get(name, 0) + read(row)
        return out


def families(figures: Figures) -> Iterator[Metric]:
    """The whole page."""
    yield from _requests(figures)
    yield from _tokens(figures)
    yield from _times(figures)
    yield from _histograms(figures)
    yield from _own(figures)


def _requests(figures: Figures) -> Iterator[Metric]:
    place = figures.pod_place
    named = ("pod_name",) if place is not None else ()

    def pod_name(row: Row) -> list[str]:
        return [row.labels[place]] if place is not None else []

    total = CounterMetricFamily("gateway_request", "Requests by model.", labels=(*figures.labels, *named))
    for row in figures.rows:
        total.add_metric((*row.labels, *pod_name(row)), row.requests)
    yield total
    ended = (*figures.labels, "status", "status_code", *named)
    success = CounterMetricFamily("gateway_request_model_success", "Requests that were answered.", labels=ended)
    fail = CounterMetricFamily("gateway_request_model_fail", "Requests that failed or were refused.", labels=ended)
    for row in figures.rows:
        for (is_success, status, code), count in row.outcomes.items():
            family = success if is_success else fail
            family.add_metric((*row.labels, status, str(code), *pod_name(row)), count)
    yield from (success, fail)
    running = figures.by_model(lambda row: row.in_flight)
    whole = GaugeMetricFamily("gateway_in_flight_requests", "Requests on their way.", labels=("gateway_pod",))
    whole.add_metric((figures.gateway,), sum(running.values()))
    yield whole
    names = ("gateway_pod", "model")
    each = GaugeMetricFamily("gateway_model_in_flight_requests", "Requests on their way, by model.", labels=names)
    for model, count in running.items():
        each.add_metric((figures.gateway, model), count)
    yield each


def _tokens(figures: Figures) -> Iterator[Metric]:
    yield _buckets(figures, "gateway_prompt_token", "Prompt tokens", lambda row: row.prompt_tokens)
    yield _buckets(figures, "gateway_completion_token", "Completion tokens", lambda row: row.completion_tokens)
    yield _counter(figures, "gateway_input_tokens", "Prompt tokens that engines told.", lambda row: row.input_tokens)
    yield _counter(figures, "gateway_output_tokens", "Output tokens that engines told.", lambda row: row.output_tokens)
    text = "Answers with and without the engine's figures."
    usage = CounterMetricFamily("gateway_requests_with_usage", text, labels=(*figures.labels, "has_usage"))
    for row in figures.rows:
        usage.add_metric((*row.labels, "true"), row.with_usage)
        usage.add_metric((*row.labels, "false"), row.without_usage)
    yield usage


def _times(figures: Figures) -> Iterator[Metric]:
    text = "Answers whose first byte took longer than the threshold, in seconds."
    labels = (*figures.labels, "threshold")
    slow = CounterMetricFamily("gateway_first_token_delay_over_1s", text, labels=labels)
    for row in figures.rows:
        slow.add_metric((*row.labels, f"{figures.slow_first_token_s:g}"), row.slow_first_tokens)
    yield slow
    yield _buckets(figures, "gateway_routing_time", "Time to decide", lambda row: row.routing_ms)
    yield _buckets(figures, "gateway_ttft", "Time to first byte", lambda row: row.ttft_ms)
    yield _buckets(figures, "gateway_tpot", "Time per output token after the first", lambda row: row.tpot_ms)
    yield _buckets(figures, "gateway_decode_time", "Time from first byte to last", lambda row: row.decode_ms)
    yield _buckets(figures, "gateway_total_time", "Whole duration", lambda row: row.total_ms)


def _histograms(figures: Figures) -> Iterator[Metric]:
    yield _histogram(figures, "decision", "Reading, deciding and admitting a request", lambda row: row.decision_s)
    yield _histogram(figures, "time_to_first_byte", "First byte of the answer", lambda row: row.first_byte_s)
    yield _histogram(figures, "request_duration", "First byte of the request to last of the answer", _duration)


def _duration(row: Row) -> Seconds:
    return row.duration_s


def _own(figures: Figures) -> Iterator[Metric]:
    alias = CounterMetricFamily(f"{_PREFIX}_requests", "Requests by model.", labels=("model",))
    for model, count in figures.by_model(lambda row: row.requests).items():
        alias.add_metric((model,), count)
    yield alias
    labels = ("model", "gateway_pod")
    replicas = GaugeMetricFamily("model_replicas", "Endpoints that may be routed to.", labels=labels)
    for model, count in figures.replicas.items():
        replicas.add_metric((model, figures.gateway), count)
    yield replicas
    text = "Requests for which a strategy could not choose by its own rule."
    fallbacks = CounterMetricFamily(f"{_PREFIX}_strategy_fallbacks", text, labels=("model", "reason"))
    for (model, reason), count in figures.fallbacks.items():
        fallbacks.add_metric((model, reason), count)
    yield fallbacks
    text = "Requests refused by a limit."
    limits = CounterMetricFamily(f"{_PREFIX}_limit_refusals", text, labels=("model", "limit"))
    for (model, limit), count in figures.limits.items():
        limits.add_metric((model, limit), count)
    yield limits
    text = "Leases that ran out: nobody told how their requests ended."
    yield CounterMetricFamily(f"{_PREFIX}_leases_expired", text, value=figures.expired)
    text = "Entries of Envoy's log about leases that are not open."
    yield CounterMetricFamily(f"{_PREFIX}_unknown_leases", text, value=figures.unknown_leases)


def _counter(figures: Figures, name: str, text: str, read: Callable[[Row], int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=figures.labels)
    for row in figures.rows:
        family.add_metric(row.labels, read(row))
    return family


def _buckets(figures: Figures, name: str, text: str, read: Callable[[Row], Buckets]) -> Metric:
    """Only buckets that hold something: a row of 60 zeros a model would be most of the page."""
    family = CounterMetricFamily(f"{name}_bucket", f"{text}, by bucket.", labels=(*figures.labels, "bucket"))
    for row in figures.rows:
        buckets = read(row)
        for bucket, count in zip(buckets.names, buckets.counts, strict=True):
            if count:
                family.add_metric((*row.labels, bucket), count)
    return family


def _histogram(figures: Figures, name: str, text: str, read: Callable[[Row], Seconds]) -> Metric:
    """By model, also where Pods are told apart: 15 buckets a Pod would be the harmful kind of cardinality."""
    sums: dict[str, tuple[list[tuple[str, float]], float]] = {}
    for row in figures.rows:
        seconds, model = read(row), figures.model_of(row)
        buckets, total_s = seconds.cumulative(), seconds.total_s
        if model in sums:
            kept, before_s = sums[model]
            buckets = [(bound, a + b) for (bound, a), (_, b) in zip(kept, buckets, strict=True)]
            total_s += before_s
        sums[model] = (buckets, total_s)
    family = HistogramMetricFamily(f"{_PREFIX}_{name}_seconds", f"{text}.", labels=("model",))
    for model, (buckets, total_s) in sums.items():
        family.add_metric((model,), buckets, total_s)
    return family

"""The sidecar's Prometheus page, built afresh for each scrape from records, counters and one look at the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric

from aibrix_operator.runtime.counters import Counters
from aibrix_operator.runtime.fleet import Fleet
from aibrix_operator.runtime.lifecycle import Adoption
from aibrix_operator.runtime.nvml import GpuReading
from aibrix_operator.runtime.observation import Observation
from aibrix_operator.runtime.records import EngineRecord
from aibrix_operator.runtime_api.wire import EnginePhase

PREFIX = "aibrix:modelclaim_"
COUNTED_PHASES = (EnginePhase.ACTIVE, EnginePhase.SLEEPING, EnginePhase.RESTARTING, EnginePhase.FAILED)


class _Page:
    """What ``generate_latest`` collects: families that are ready."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """All families."""
        return self._families


async def render(fleet: Fleet, observation: Observation) -> bytes:
    """The page in Prometheus' text format."""
    reading = await asyncio.to_thread(fleet.nvml.read)
    records = tuple(fleet.records.values())
    families = page(records, observation, reading, fleet.counters)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(families))
    return generate_latest(registry)


def page(
    records: Sequence[EngineRecord], observation: Observation, reading: GpuReading, counters: Counters
) -> Sequence[Metric]:
    """All families of a scrape; those about engines are there without any, too."""
    return [*_engine_gauges(records, observation, reading), *_counters(counters)]


def _engine_gauges(records: Sequence[EngineRecord], observation: Observation, reading: GpuReading) -> Iterator[Metric]:
    resident = [record for record in records if observation.is_alive(record)]
    yield GaugeMetricFamily(f"{PREFIX}models_resident", "Engines whose process runs", value=len(resident))
    used = _gauge("kv_used_bytes", "KV memory that the engine maps", "model")
    total = _gauge("kv_total_bytes", "KV limit in force", "model")
    peak = _gauge("hbm_peak_bytes", "Most memory the engine holds on one GPU", "model")
    asleep = _gauge("sleeping_footprint_bytes", "What the engine held right after falling asleep", "model")
    state = _gauge("engine_state", "Engines in this phase", "phase")
    for record in resident:
        kv = observation.kv(record)
        used.add_metric([record.model_name], max(kv.used_bytes, 0))
        total.add_metric([record.model_name], max(kv.capacity_bytes, 0))
        peak.add_metric([record.model_name], observation.peak_bytes(record, reading))
        if record.sleeping_footprint_bytes is not None:
            asleep.add_metric([record.model_name], record.sleeping_footprint_bytes)
    for phase in COUNTED_PHASES:
        state.add_metric([phase], sum(record.phase is phase for record in records))
    yield from (used, total, peak, asleep, state)


def _counters(counters: Counters) -> Iterator[Metric]:
    requested = _gauge("kv_limit_requested_bytes", "KV limit asked for last", "model")
    for model, limit_bytes in counters.kv_limit_requested_bytes.items():
        requested.add_metric([model], limit_bytes)
    applied = _gauge("kv_limit_applied_bytes", "KV limit written last", "model")
    for model, limit_bytes in counters.kv_limit_applied_bytes.items():
        applied.add_metric([model], limit_bytes)
    restarts = _counter("engine_restart_attempts", "Relaunches of a dead engine", "model")
    for model, count in counters.restart_attempts.items():
        restarts.add_metric([model], count)
    exhausted = _counter("engine_restart_budget_exhausted", "Engines that failed for good", "model")
    for model, count in counters.budgets_exhausted.items():
        exhausted.add_metric([model], count)
    adoptions = _counter("engine_re_adoptions", "Stored engines found at start", "result")
    for adoption in Adoption:
        adoptions.add_metric([adoption], counters.adoptions[adoption])
    kv_limits = _counter("kv_limit_operations", "KV limits asked for", "model", "result")
    for (model, result), count in counters.kv_limits.items():
        kv_limits.add_metric([model, result], count)
    lifecycle = _counter("lifecycle_operations", "Sleeps and wakes asked for", "model", "action", "result")
    duration = SummaryMetricFamily(
        f"{PREFIX}lifecycle_operation_duration_seconds",
        "How long sleeps and wakes took",
        labels=("model", "action", "result"),
    )
    for (model, action, result), count in counters.lifecycle.items():
        lifecycle.add_metric([model, action, result], count)
        duration.add_metric([model, action, result], count, counters.lifecycle_s[model, action, result])
    yield from (requested, applied, restarts, exhausted, adoptions, kv_limits, lifecycle, duration)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=labels)

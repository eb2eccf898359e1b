"""What the sidecar tells of its engines: snapshot and list. Reads only, takes no lock, probes engines in parallel."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aibrix_operator.runtime import activity, footprint, kv_segment, weight_cache
from aibrix_operator.runtime.activity import UNOBSERVED, Activity
from aibrix_operator.runtime.fleet import Fleet
from aibrix_operator.runtime.nvml import GpuReading
from aibrix_operator.runtime.records import EngineRecord
from aibrix_operator.runtime_api.wire import (
    INT64_MAX,
    UNKNOWN_BYTES,
    EnginePhase,
    ModelEntry,
    ModelsResponse,
    ModelState,
    Snapshot,
)

SERVING_PHASES = frozenset({EnginePhase.BOOTING, EnginePhase.ACTIVE})


@dataclass(frozen=True, slots=True)
class KVFigures:
    """KV memory of one engine, each ``UNKNOWN_BYTES`` without a readable segment."""

    used_bytes: int
    capacity_bytes: int


@dataclass(frozen=True, slots=True)
class Probe:
    """What an engine itself said."""

    ready: bool
    activity: Activity


class Observation:
    """Looks at a fleet without touching it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def snapshot(self) -> Snapshot:
        """All that is known now. Dated before the readings, so that no figure is older than it claims to be."""
        fleet = self._fleet
        records = tuple(fleet.records.values())
        observed_at = fleet.clock()
        reading, artifacts, probes = await asyncio.gather(
            asyncio.to_thread(fleet.nvml.read),
            asyncio.to_thread(weight_cache.cached_artifacts, fleet.settings.weight_cache_dir),
            asyncio.gather(*(self._probe(record) for record in records)),
        )
        return Snapshot(
            observed_at=observed_at,
            accelerators=reading.accelerators,
            models=tuple(self._state(*pair, reading) for pair in zip(records, probes, strict=True)),
            cached_artifacts=artifacts,
        )

    async def models(self) -> ModelsResponse:
        """The short list. A missing segment reads 0 here."""
        records = tuple(self._fleet.records.values())
        ready = await asyncio.gather(*(self._is_ready(record) for record in records))
        return ModelsResponse(models=tuple(self._entry(*pair) for pair in zip(records, ready, strict=True)))

    def is_alive(self, record: EngineRecord) -> bool:
        """Whether the engine's first process runs and the engine has not failed for good."""
        return record.phase is not EnginePhase.FAILED and self._fleet.launcher.is_running(record.process)

    def kv(self, record: EngineRecord) -> KVFigures:
        """The engine's KV figures, whatever its phase: a dead engine's segment keeps its last values."""
        segment = kv_segment.read(self._fleet.settings.kv_segment_dir, record.ipc_name)
        if segment is None:
            return KVFigures(UNKNOWN_BYTES, UNKNOWN_BYTES)
        return KVFigures(_as_bytes(segment.mapped_bytes), _as_bytes(segment.total_bytes))

    def peak_bytes(self, record: EngineRecord, reading: GpuReading) -> int:
        """The most memory that the engine's processes hold on one GPU now; 0 when NVML names none of them."""
        own = self._fleet.owned_pids(record, frozenset(reading.held_bytes))
        return footprint.peak_bytes(own, reading.held_bytes)

    async def _is_ready(self, record: EngineRecord) -> bool:
        """A sleeper may answer its health check, and still cannot serve."""
        if record.phase not in SERVING_PHASES or not self.is_alive(record):
            return False
        return await self._fleet.door(record).is_ready()

    async def _probe(self, record: EngineRecord) -> Probe:
        ready, doing = await asyncio.gather(self._is_ready(record), self._activity(record))
        return Probe(ready, doing)

    async def _activity(self, record: EngineRecord) -> Activity:
        if record.phase is not EnginePhase.ACTIVE or not self.is_alive(record):
            return UNOBSERVED
        page = await self._fleet.door(record).metrics_page()
        if page is None:
            return UNOBSERVED
        names = self._fleet.kinds.launched_as(record.engine).metric_names
        return activity.parse(page, names, record.model_name)

    def _state(self, record: EngineRecord, probe: Probe, reading: GpuReading) -> ModelState:
        kv = self.kv(record)
        is_alive = self.is_alive(record)
        return ModelState(
            model_name=record.model_name,
            artifact_url=record.artifact_url,
            claim_ref=record.claim_ref,
            port=record.port,
            ipc_name=record.ipc_name,
            phase=record.phase,
            ready=probe.ready and is_alive,  # it may have died since it was asked
            alive=is_alive,
            restart_count=record.restart_count,
            last_error=record.last_error,
            last_transition=record.last_transition,
            kv_used_bytes=kv.used_bytes,
            kv_capacity_bytes=kv.capacity_bytes,
            hbm_peak_bytes=self.peak_bytes(record, reading),
            sleeping_footprint_bytes=record.sleeping_footprint_bytes,
            request_metrics_observed=probe.activity.observed,
            requests_running=probe.activity.running,
            requests_waiting=probe.activity.waiting,
            request_success_total=probe.activity.succeeded,
            can_sleep=self._fleet.can_sleep(record),
        )

    def _entry(self, record: EngineRecord, ready: bool) -> ModelEntry:
        kv = self.kv(record)
        return ModelEntry(
            model_name=record.model_name,
            port=record.port,
            ipc_name=record.ipc_name,
            phase=record.phase,
            ready=ready and self.is_alive(record),
            kv_used_bytes=max(kv.used_bytes, 0),
            kv_total_bytes=max(kv.capacity_bytes, 0),
        )


def _as_bytes(figure: int) -> int:
    """A figure out of shared memory, which anyone may have scribbled on."""
    return figure if 0 <= figure <= INT64_MAX else UNKNOWN_BYTES

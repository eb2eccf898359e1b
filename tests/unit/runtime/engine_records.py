"""Builders of engine records: a row shows only what matters to it."""

from datetime import UTC, datetime, timedelta

from aibrix_operator.runtime.records import EngineProcess, EngineRecord
from aibrix_operator.runtime_api.wire import EnginePhase

NOW = datetime(2026, 11, 29, 8, 0, tzinfo=UTC)
BEFORE = NOW - timedelta(minutes=5)
PROCESS = EngineProcess(4_000, "76784")


def make_record(phase=EnginePhase.ACTIVE, **more):
    fields = {
        "model_name": "m",
        "artifact_url": "hf://org/m",
        "engine": "vllm",
        "port": 20_000,
        "ipc_name": "kvc_m",
        "last_transition": BEFORE,
        "phase": phase,
        "process": PROCESS,
    }
    return EngineRecord(**(fields | more))

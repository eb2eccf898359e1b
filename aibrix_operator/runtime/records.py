"""What the sidecar remembers of one engine. Frozen: the life cycle makes a new record for every change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from aibrix_operator.runtime_api.wire import ActivateRequest, ClaimRef, EnginePhase

LEGACY_ARG_PREFIX = "engine-arg:"
_FOREIGN_IN_IPC_NAME = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """The first process of an engine, which leads its session and process group.

    ``start_ticks`` is procfs' start time: a pid alone may name a stranger after it was given away again.
    """

    pid: int
    start_ticks: str


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """One engine: what was asked for, and where its life stands."""

    model_name: str
    artifact_url: str
    engine: str
    port: int
    ipc_name: str
    last_transition: datetime
    claim_ref: ClaimRef | None = None
    engine_args: Mapping[str, str] | None = None
    """flag → value in the order of the command line; None when none were given."""
    additional_config: Mapping[str, str] | None = field(default=None, repr=False)
    phase: EnginePhase = EnginePhase.BOOTING
    process: EngineProcess | None = None
    """None between a death and the next launch."""
    restart_count: int = 0
    last_error: str | None = None
    next_restart_at: datetime | None = None
    sleeping_footprint_bytes: int | None = None
    """Only while sleeping; None also when the reading could not be attributed."""

    @property
    def command_args(self) -> Mapping[str, str]:
        """All flags for the command line, the legacy ones last."""
        return merge_args(self.engine_args, self.additional_config)


def merge_args(args: Mapping[str, str] | None, additional: Mapping[str, str] | None) -> dict[str, str]:
    """flag → value; a legacy ``engine-arg:<flag>`` key wins over the same flag in ``args``."""
    merged = dict(args or {})
    for key, value in (additional or {}).items():
        if key.startswith(LEGACY_ARG_PREFIX):
            merged[key.removeprefix(LEGACY_ARG_PREFIX)] = value
    return merged


def ipc_name_for(request: ActivateRequest) -> str:
    """The KV segment's name as kvcached itself will spell it, or limits would go to a segment that nobody reads."""
    return _FOREIGN_IN_IPC_NAME.sub("-", request.ipc_name or f"kvc_{request.model_name}")


def new_record(request: ActivateRequest, port: int, now: datetime) -> EngineRecord:
    """The record of an engine that is about to be launched."""
    return EngineRecord(
        model_name=request.model_name,
        artifact_url=request.artifact_url,
        engine=request.engine,
        port=port,
        ipc_name=ipc_name_for(request),
        last_transition=now,
        claim_ref=request.claim_ref,
        engine_args=None if request.engine_config is None else request.engine_config.args,
        additional_config=request.additional_config,
    )

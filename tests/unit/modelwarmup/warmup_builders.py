"""Snapshots of warmups: a row shows only what matters to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from aibrix_operator.api.modelwarmup import ModelWarmupSpec, ModelWarmupStatus
from aibrix_operator.controller.steps import Moment, Ref
from aibrix_operator.modelwarmup.decide import Memory, decide
from aibrix_operator.modelwarmup.job import job_name
from aibrix_operator.modelwarmup.revision import revision_of
from aibrix_operator.modelwarmup.snapshot import Job, JobState, Refusal, Report, Warmup

OPEN = {"model.aibrix.ai/warmup-enabled": "true", "resource-pool.aibrix.ai/name": "lat"}
NOW = Moment(datetime(2026, 1, 1, 12, 0, tzinfo=UTC), 100.0)
REF = Ref("serving", "warm", "uid-of-warm")
IMAGE = {"image": "busybox", "command": ["true"]}


def spec(*names: str, **fields: Any) -> dict[str, Any]:
    """A spec whose one target names these nodes."""
    return {"targets": [{"nodes": {"names": list(names)}}], "imagePreload": {"images": [IMAGE]}} | fields


def warmup(
    *names: str,
    nodes: dict[str, dict[str, str]] | None = None,
    jobs: tuple[Job, ...] = (),
    status: ModelWarmupStatus | None = None,
    refusals: tuple[Refusal, ...] = (),
    ref: Ref = REF,
    pool: str = "lat",
    **fields: Any,
) -> Warmup:
    """A warmup of these nodes, which exist and are open unless said."""
    written = spec(*names, **fields)
    return Warmup(
        ref=ref,
        generation=1,
        spec=ModelWarmupSpec.model_validate(written),
        problem="",
        custom=written.get("custom") or {},
        status=status or ModelWarmupStatus(),
        pool=pool,
        nodes=dict.fromkeys(names, OPEN) if nodes is None else nodes,
        jobs=jobs,
        refusals=refusals,
    )


REVISION = revision_of(ModelWarmupSpec.model_validate(spec("n1")), {})


def job(
    node: str,
    state: JobState = JobState.ACTIVE,
    *,
    revision: str = REVISION,
    reason: str = "",
    message: str = "",
    has_ttl: bool = False,
    reports: tuple[Report, ...] = (),
) -> Job:
    """The warmup's Job on a node."""
    name = job_name(REF, node, revision)
    ref = Ref("serving", name, f"uid-of-{name}")
    return Job(ref, node, revision, state, reason, message, has_ttl=has_ttl, reports=reports)


def planned(of: Warmup, memory: Memory | None = None, now: Moment = NOW):
    """(steps but the status, the status, the notes' reasons, memory)."""
    plan, memory = decide(of, memory or Memory(), now)
    *others, status = plan.steps
    return others, ModelWarmupStatus.model_validate(status.status), [n.reason for n in plan.notes], memory

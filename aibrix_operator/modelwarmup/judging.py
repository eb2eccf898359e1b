"""From targets and Jobs to the state of each node, and from those to the phase. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from aibrix_operator.api.conditions import Condition, rfc3339, set_condition
from aibrix_operator.api.modelwarmup import (
    MAX_DETAILS,
    MAX_TARGETS,
    ConditionType,
    ModelWarmupSpec,
    ModelWarmupStatus,
    Reason,
    TargetPhase,
    TargetStatus,
    WarmupPhase,
)
from aibrix_operator.modelwarmup.snapshot import Job, JobState, Warmup
from aibrix_operator.modelwarmup.targets import Resolved

MAX_BYTES = 1024
"""Of a reason or message of a target."""
_ORDER = {TargetPhase.FAILED: 0, TargetPhase.RUNNING: 1, TargetPhase.PENDING: 2}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The phase, and the one condition that is in force."""

    phase: WarmupPhase
    type: ConditionType
    reason: Reason
    message: str


LIMIT = "resolved {} targets; maximum is {}"


def over_limit(count: int) -> Verdict:
    """More nodes than a warmup takes."""
    message = LIMIT.format(count, MAX_TARGETS)
    return Verdict(WarmupPhase.FAILED, ConditionType.DEGRADED, Reason.TARGET_LIMIT_EXCEEDED, message)


def unreadable(problem: str) -> Verdict:
    """A spec that an older or foreign schema let through."""
    return Verdict(WarmupPhase.FAILED, ConditionType.DEGRADED, Reason.INVALID_SPEC, problem)


def judge(spec: ModelWarmupSpec, items: Mapping[str, TargetStatus], succeeded: int) -> Verdict:
    """``items``: the nodes that have not succeeded. The first that matches:

    1. nobody wanted: pending; 2. somebody runs or waits: running; 3. all failed; 4. some failed; 5. succeeded.
    """
    phases = [item.phase for item in items.values()]
    if not items and not succeeded:
        message = "waiting for target nodes to match the configured selectors"
        return Verdict(WarmupPhase.PENDING, ConditionType.PROGRESSING, Reason.NO_TARGETS_RESOLVED, message)
    if TargetPhase.RUNNING in phases or TargetPhase.PENDING in phases:
        return Verdict(WarmupPhase.RUNNING, ConditionType.PROGRESSING, Reason.JOBS_RUNNING, "waiting for warmup jobs")
    if phases:
        phase = WarmupPhase.DEGRADED if succeeded else WarmupPhase.FAILED
        return Verdict(phase, ConditionType.DEGRADED, Reason.NODE_FAILED, "one or more warmup jobs failed")
    plain = spec.custom is None and spec.weights is None
    reason = Reason.IMAGE_PRELOAD_SUCCEEDED if plain else Reason.WARMUP_SUCCEEDED
    return Verdict(WarmupPhase.SUCCEEDED, ConditionType.COMPLETE, reason, "all target jobs succeeded")


def items_of(
    warmup: Warmup,
    resolved: Resolved,
    jobs: Mapping[str, Job],
    revision: str,
    refused: Mapping[str, str],
    now: datetime,
) -> tuple[dict[str, TargetStatus], int]:
    """Node → what is told of it, and how many have succeeded. ``jobs``: by node; ``refused``: node → why its Job was
    not taken."""
    before = {item.node_name: item for item in warmup.status.targets}
    items: dict[str, TargetStatus] = {}
    succeeded = 0
    for missing in resolved.missing:
        items[missing.node] = TargetStatus(
            node_name=missing.node,
            revision=revision,
            phase=TargetPhase.FAILED,
            reason=str(missing.reason),
            message=missing.message,
        )
    for target in resolved.targets:
        job = jobs.get(target.node)
        if job is not None and job.state is JobState.SUCCEEDED:
            succeeded += 1
            continue
        phase, reason, message = _told(job, refused.get(target.node, ""))
        items[target.node] = TargetStatus(
            node_name=target.node,
            source=target.source,
            source_count=target.source_count,
            revision=revision,
            job_name="" if job is None else job.ref.name,
            phase=phase,
            reason=cut(reason),
            message=cut(message),
        )
    return {node: _dated(item, before.get(node), now) for node, item in items.items()}, succeeded


def _told(job: Job | None, refused: str) -> tuple[TargetPhase, str, str]:
    if job is None:
        if refused:
            return (
                TargetPhase.PENDING,
                str(Reason.JOB_REFUSED),
                f"waiting for a warmup job, which is refused: {refused}",
            )
        return TargetPhase.PENDING, "", "waiting for a warmup job"
    if job.state is JobState.ACTIVE:
        return TargetPhase.RUNNING, "", "warmup job is running"
    said = next((report for report in job.reports if report.reason), None)
    if said is not None:
        return TargetPhase.FAILED, said.reason, said.message
    return TargetPhase.FAILED, job.reason or str(Reason.JOB_FAILED), job.message or "warmup job failed"


def _dated(item: TargetStatus, before: TargetStatus | None, now: datetime) -> TargetStatus:
    is_same = before is not None and (before.phase, before.reason, before.message) == (
        item.phase,
        item.reason,
        item.message,
    )
    since = before.last_transition_time if before is not None and is_same else rfc3339(now)
    return item.model_copy(update={"last_transition_time": since})


def cut(text: str) -> str:
    """At most 1,024 bytes of UTF-8, cut between two characters."""
    encoded = text.encode(errors="replace")
    return encoded.decode() if len(encoded) <= MAX_BYTES else encoded[:MAX_BYTES].decode(errors="ignore")


def status_of(
    warmup: Warmup,
    verdict: Verdict,
    revision: str,
    items: Mapping[str, TargetStatus],
    succeeded: int,
    fetched_bytes: int,
    now: datetime,
) -> ModelWarmupStatus:
    """The whole status. Its times move only where what they date does."""
    before = warmup.status
    order = sorted(items.values(), key=lambda item: (_ORDER[item.phase], item.node_name))
    desired = len(items) + succeeded
    at = rfc3339(now)
    return ModelWarmupStatus(
        phase=verdict.phase,
        observed_revision=revision,
        desired_nodes=desired,
        active_nodes=sum(item.phase is TargetPhase.RUNNING for item in order),
        succeeded_nodes=succeeded,
        failed_nodes=sum(item.phase is TargetPhase.FAILED for item in order),
        progress=f"{succeeded}/{desired}",
        fetched_bytes=fetched_bytes,
        omitted_target_details=max(0, len(order) - MAX_DETAILS),
        start_time=before.start_time or at,
        completion_time=at if verdict.phase.is_terminal else "",
        targets=tuple(order[:MAX_DETAILS]),
        conditions=_conditions(before.conditions, verdict, warmup.generation, now),
    )


def _conditions(
    before: tuple[Condition, ...], verdict: Verdict, generation: int, now: datetime
) -> tuple[Condition, ...]:
    conditions = tuple(c for c in before if c.type in set(ConditionType))
    for type_ in ConditionType:
        is_in_force = type_ is verdict.type
        conditions = set_condition(
            conditions,
            type_,
            is_in_force,
            verdict.reason if is_in_force else Reason.NOT_ACTIVE,
            verdict.message if is_in_force else "condition is not active",
            generation=generation,
            now=now,
        )
    return conditions

"""What one warmup needs now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from aibrix_operator.api.modelwarmup import MAX_TARGETS, Reason, TargetPhase, WarmupPhase
from aibrix_operator.cluster.backoff import Backoff
from aibrix_operator.cluster.resource import JOBS
from aibrix_operator.controller.steps import Create, Delete, Moment, Note, Patch, Plan, SetStatus, Step
from aibrix_operator.modelwarmup.job import job_name, job_of
from aibrix_operator.modelwarmup.judging import Verdict, items_of, judge, over_limit, status_of, unreadable
from aibrix_operator.modelwarmup.revision import revision_of
from aibrix_operator.modelwarmup.snapshot import JobState, Refusal, Warmup
from aibrix_operator.modelwarmup.targets import Resolved, resolve

_BACKOFF = Backoff(initial_s=1.0, max_s=60.0)
ALL = ""
"""Stands for every node where a refusal concerns them all."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A Job that the API server does not take."""

    text: str
    tries: int
    until_s: float
    """Not tried again before."""
    is_retried: bool = False
    """It was tried again since; no word of it means that it is taken now."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Losing it costs a try each."""

    refused: Mapping[str, Refused] = field(default_factory=dict)
    """Node, or ``ALL`` → why it gets no Job for now."""


def decide(warmup: Warmup, memory: Memory, now: Moment) -> tuple[Plan, Memory]:
    """The plan of one pass.

    A warmup that is over gets the time to live of its Jobs and nothing else. It is set *after* the phase is published:
    the other way round a Job that vanishes before would be made once more.
    """
    if warmup.spec is None:
        phase = warmup.status.phase
        is_over = phase is not None and phase.is_terminal
        return Plan() if is_over else _ended(warmup, unreadable(warmup.problem), now), memory
    revision = revision_of(warmup.spec, warmup.custom)
    if warmup.status.phase is not None and warmup.status.phase.is_terminal:
        return Plan(_times_to_live(warmup, revision)), Memory()
    resolved = resolve(warmup.spec, warmup.pool, warmup.nodes)
    if resolved.count > MAX_TARGETS:
        return _ended(warmup, over_limit(resolved.count), now, revision, resolved.count), memory
    memory = _remember(memory, warmup.refusals, now)
    wanted = {target.node: job_name(warmup.ref, target.node, revision) for target in resolved.targets}
    stale = [
        job
        for job in warmup.jobs
        if job.state is JobState.ACTIVE and (job.revision != revision or job.node not in wanted)
    ]
    by_node = {
        job.node: job for job in warmup.jobs if job.revision == revision and wanted.get(job.node) == job.ref.name
    }
    steps: list[Step] = [Delete(JOBS, job.ref) for job in stale if not job.is_deleting]
    creates = _creates(warmup, wanted, revision, memory, now)
    steps += creates
    if creates:
        memory = _retried(memory, now)
    refused = {node: _refusal(memory, node) for node in wanted}
    items, succeeded = items_of(warmup, resolved, by_node, revision, refused, now.wall)
    fetched = sum(report.fetched_bytes for job in by_node.values() for report in job.reports)
    verdict = judge(warmup.spec, items, succeeded)
    status = status_of(warmup, verdict, revision, items, succeeded, fetched, now.wall)
    notes = _notes(warmup, verdict, resolved, [i.node_name for i in items.values() if i.phase is TargetPhase.FAILED])
    plan = Plan((*steps, SetStatus(status.to_object())), (*notes, *_told_refusals(memory)), _next_s(memory, now))
    return plan, memory


def _times_to_live(warmup: Warmup, revision: str) -> tuple[Step, ...]:
    """For every Job of the revision, those of nodes that have left included."""
    assert warmup.spec is not None
    patch = {"spec": {"ttlSecondsAfterFinished": warmup.spec.effective_policies.ttl_seconds_after_finished}}
    return tuple(
        Patch(JOBS, job.ref, patch)
        for job in warmup.jobs
        if job.state is not JobState.ACTIVE and job.revision == revision and not job.has_ttl and not job.is_deleting
    )


def _creates(warmup: Warmup, wanted: Mapping[str, str], revision: str, memory: Memory, now: Moment) -> list[Step]:
    """Jobs for nodes that have none, by name of the node, while there is capacity. A Job that is being deleted takes
    capacity until it is gone; one that is refused takes none, so that the next node comes to its turn."""
    assert warmup.spec is not None
    taken = {job.ref.name for job in warmup.jobs} | warmup.taken
    room = warmup.spec.effective_policies.parallelism - sum(job.state is JobState.ACTIVE for job in warmup.jobs)
    steps: list[Step] = []
    if _waits(memory, ALL, now):
        return steps
    for node in sorted(wanted):
        if len(steps) >= room:
            break
        if wanted[node] not in taken and not _waits(memory, node, now):
            steps.append(Create(JOBS, job_of(warmup, node, revision)))
    return steps


# --- refusals


def _remember(memory: Memory, refusals: Sequence[Refusal], now: Moment) -> Memory:
    again = {refusal.node if refusal.is_of_this_name else ALL for refusal in refusals}
    refused = {node: one for node, one in memory.refused.items() if node in again or not one.is_retried}
    for refusal in refusals:
        node = refusal.node if refusal.is_of_this_name else ALL
        before = refused.get(node)
        if before is not None and before.until_s > now.monotonic_s:
            continue  # one of several that ended together
        tries = 1 if before is None else before.tries + 1
        refused[node] = Refused(refusal.text, tries, now.monotonic_s + _BACKOFF.delay_s(tries))
    return Memory(refused)


def _retried(memory: Memory, now: Moment) -> Memory:
    """What was due is tried in this pass. A node whose turn does not come is tried later, and told of until then."""
    return Memory(
        {
            node: one if _waits(memory, node, now) else replace(one, is_retried=True)
            for node, one in memory.refused.items()
        }
    )


def _waits(memory: Memory, node: str, now: Moment) -> bool:
    refused = memory.refused.get(node)
    return refused is not None and refused.until_s > now.monotonic_s


def _refusal(memory: Memory, node: str) -> str:
    refused = memory.refused.get(node) or memory.refused.get(ALL)
    return "" if refused is None else refused.text


def _next_s(memory: Memory, now: Moment) -> float | None:
    """When the next refused Job is to be tried again."""
    waits = [r.until_s - now.monotonic_s for r in memory.refused.values() if r.until_s > now.monotonic_s]
    return min(waits, default=None)


# --- telling


def _told_refusals(memory: Memory) -> list[Note]:
    """Equal Events are merged, and each try is one."""
    return [
        Note("Warning", str(Reason.JOB_REFUSED), f"a warmup job is refused and tried again: {refused.text}")
        for refused in memory.refused.values()
        if refused.tries == 1
    ]


def _notes(warmup: Warmup, verdict: Verdict, resolved: Resolved, failed: Sequence[str]) -> list[Note]:
    """What is new since the last status."""
    notes = []
    if warmup.status.phase is None:
        notes.append(Note("Normal", str(Reason.STARTED), f"warming up {resolved.count} nodes"))
    known = {item.node_name for item in warmup.status.targets if item.phase is TargetPhase.FAILED}
    new = sorted(set(failed) - known)
    if new and not warmup.status.omitted_target_details:
        more = f" and {len(new) - 8} more" if len(new) > 8 else ""
        notes.append(Note("Warning", str(Reason.NODE_FAILED), f"failed on {', '.join(new[:8])}{more}"))
    if verdict.phase.is_terminal:
        is_good = verdict.phase is WarmupPhase.SUCCEEDED
        notes.append(Note("Normal" if is_good else "Warning", str(verdict.phase), verdict.message))
    return notes


def _ended(warmup: Warmup, verdict: Verdict, now: Moment, revision: str = "", desired: int = 0) -> Plan:
    """Over before any Job was made or deleted."""
    status = status_of(warmup, verdict, revision, {}, 0, 0, now.wall).model_copy(
        update={"desired_nodes": desired, "progress": f"0/{desired}"}
    )
    note = Note("Warning", str(verdict.reason), verdict.message)
    return Plan((SetStatus(status.to_object()),), (note,))

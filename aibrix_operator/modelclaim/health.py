"""What one engine is doing, by the last reading, and whether requests may be routed to it.

The reading alone decides. An engine joins the route only with exactly its own limit in force, keeps it below that
limit, and leaves it above.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Instance, InstancePhase, Reason
from aibrix_operator.api.route import RouteError, RouteState, parse_route
from aibrix_operator.ledger import figures
from aibrix_operator.modelclaim.accounts import Sitting
from aibrix_operator.modelclaim.snapshot import Pod
from aibrix_operator.modelclaim.steps import EventType, Note
from aibrix_operator.runtime_api.wire import EnginePhase, ModelState


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be recorded for one instance, with the Events that go with it."""

    instance: Instance
    notes: tuple[Note, ...] = ()
    limit_to_write: int | None = None
    """Its record, when the engine off the route is held to something else and may be written to now."""
    is_above_record: bool = False
    """It was routed and found above its record, or without a readable limit."""


@dataclass(frozen=True, slots=True)
class _Case:
    """One instance with the words for its Events."""

    sitting: Sitting
    pod: Pod
    was_asleep: bool
    is_judged: bool
    model: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", self.sitting.claim.model)

    def becomes(self, phase: InstancePhase, *notes: Note, port: int | None = None) -> Verdict:
        """The instance in ``phase``; the reason goes with the phase it explained."""
        before = self.sitting.instance
        port = before.port if port is None else port
        reason = before.reason if phase is before.phase else ""
        if (phase, port, reason) == (before.phase, before.port, before.reason):
            return Verdict(before, notes)
        return Verdict(before.model_copy(update={"phase": phase, "port": port, "reason": reason}), notes)


def judge(sitting: Sitting, pod: Pod, was_asleep: bool = False, is_judged: bool = False) -> Verdict:
    """Judge one instance on a Pod that runs. A runtime that cannot be read leaves everything as it was.

    ``was_asleep`` says that the engine boots because it was woken; ``is_judged`` that its card can be divided for it,
    or must be: a seat given away as it slept is not its own again because its card cannot be judged for a while.
    """
    sitting = _as_published_next(sitting)
    case = _Case(sitting, pod, was_asleep, is_judged)
    before, engine = sitting.instance, sitting.engine
    if pod.reading.snapshot is None or before.phase is InstancePhase.FAILED:
        return Verdict(before)
    if engine is None:
        return case.becomes(InstancePhase.ACTIVATING, *_unhealthy(case))
    if engine.phase is EnginePhase.FAILED:
        error = engine.last_error or "runtime reported terminal engine failure"
        message = f"model {case.model} failed on pod {pod.name}: {error}"
        return case.becomes(InstancePhase.FAILED, Note(EventType.WARNING, Reason.ENGINE_FAILED, message))
    if engine.phase is EnginePhase.SLEEPING:
        return case.becomes(InstancePhase.SLEEPING, port=engine.port)
    if not engine.ready or engine.port == 0 or engine.phase in (EnginePhase.RESTARTING, EnginePhase.STOPPING):
        return case.becomes(InstancePhase.ACTIVATING, *_unhealthy(case), *_starting(case, engine), port=engine.port)
    return _judge_ready(case, engine)


def _as_published_next(sitting: Sitting) -> Sitting:
    """The sitting as one that serves, when a write under way says so: its route is out by then, and must not go and
    come back because a neighbour's placement lowers its limit before the write is acknowledged."""
    before = sitting.instance
    for instance in sitting.claim.writing_instances:
        if instance.pod == before.pod and instance.phase is InstancePhase.ACTIVE and before.phase is not instance.phase:
            changes = {"phase": instance.phase, "port": instance.port, "reason": instance.reason}
            return dataclasses.replace(sitting, instance=before.model_copy(update=changes))
    return sitting


def _judge_ready(case: _Case, engine: ModelState) -> Verdict:
    """The route gate of an engine that answers its health check."""
    before = case.sitting.instance
    record, in_force = before.kv_limit_bytes, engine.kv_capacity_bytes
    if before.phase is InstancePhase.ACTIVE:
        if record == 0 or 0 <= in_force <= record:
            return case.becomes(InstancePhase.ACTIVE, port=engine.port)
        message = (
            f"model {case.model} on pod {case.pod.name} is held to more KV than its limit of {figures.gib(record)}; "
            "marked non-routable until the limit is written again"
        )
        note = Note(EventType.WARNING, Reason.KV_LIMIT_NOT_HELD, message)
        verdict = case.becomes(InstancePhase.ACTIVATING, note, port=engine.port)
        return Verdict(verdict.instance, verdict.notes, is_above_record=True)
    # A sleeper that lent its seat has a record of 0. Woken past us, it serves once the card is divided for it; where
    # no seat was given away, an engine without record on a card that cannot be judged is one from before there were
    # records.
    may_have_lent = case.pod.lends_seats and (in_force == 0 or case.sitting.claim.seat is not None)
    is_undivided = record == 0 <= in_force and (case.is_judged or may_have_lent)
    if record in (0, in_force) and not is_undivided:
        return case.becomes(InstancePhase.ACTIVE, *_starting(case, engine), _routable(case, engine), port=engine.port)
    verdict = case.becomes(InstancePhase.ACTIVATING, *_starting(case, engine), port=engine.port)
    # Below what it maps no limit is written, however it came to map that; it gives pages back as it idles.
    may_write = record > 0 and in_force >= 0 and case.sitting.mapped_bytes <= record and not _is_routed(case)
    return Verdict(verdict.instance, verdict.notes, limit_to_write=record if may_write else None)


def _is_routed(case: _Case) -> bool:
    """Whether the Pod still carries an active route of this claim: it goes before the engine's limit is touched."""
    text = case.pod.annotations.get(names.route_annotation(case.sitting.claim.name))
    if text is None:
        return False
    try:
        return parse_route(text).state is RouteState.ACTIVE
    except RouteError:
        return False


def _unhealthy(case: _Case) -> tuple[Note, ...]:
    if case.sitting.instance.phase is not InstancePhase.ACTIVE:
        return ()
    message = f"model {case.model} no longer ready on pod {case.pod.name}; marked non-routable"
    return (Note(EventType.WARNING, Reason.UNHEALTHY, message),)


def _starting(case: _Case, engine: ModelState) -> tuple[Note, ...]:
    """The first sight of a started engine, which is when its port becomes known."""
    if case.sitting.instance.port != 0 or engine.port == 0:
        return ()
    message = f"model {case.model} engine starting on pod {case.pod.name}:{engine.port}"
    return (Note(EventType.NORMAL, Reason.ACTIVATING, message),)


def _routable(case: _Case, engine: ModelState) -> Note:
    where = f"on pod {case.pod.name}:{engine.port}"
    if case.was_asleep or case.sitting.instance.phase is InstancePhase.SLEEPING:
        return Note(EventType.NORMAL, Reason.WOKEN, f"model {case.model} woke and is routable {where}")
    return Note(EventType.NORMAL, Reason.ACTIVATED, f"model {case.model} ready and routable {where}")

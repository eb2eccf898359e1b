"""The status that a pass comes to. Pure: the same placing over the same status gives the same status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from aibrix_operator.api.conditions import (
    Condition,
    ConditionStatus,
    bounded,
    find_condition,
    rfc3339,
    set_condition,
)
from aibrix_operator.api.modeladapter import AdapterPhase, ConditionType, LoadedAdapter, ModelAdapterStatus, Reason
from aibrix_operator.modeladapter.holding import Held, Standing
from aibrix_operator.modeladapter.placing import Placing
from aibrix_operator.modeladapter.snapshot import Adapter, Refusal


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the pass found out, for the status to tell."""

    placing: Placing
    standings: Sequence[Standing]
    instances: tuple[str, ...]
    """Pods that may be told of: they have it, and the EndpointSlice has them."""
    is_in_place: bool
    """The Service is there, and its EndpointSlices have all of ``instances``."""
    refusal: Refusal | None = None
    fault: tuple[Reason, str] | None = None
    """Why it is not loaded anywhere whatever Pods there are; None: nothing of the kind."""


@dataclass
class _Writing:
    """One status on its way."""

    adapter: Adapter
    now: datetime
    phase: AdapterPhase = AdapterPhase.PENDING
    conditions: tuple[Condition, ...] = field(default=())

    def say(self, type_: ConditionType, status: bool, reason: Reason, message: str) -> None:
        self.conditions = set_condition(
            self.conditions, type_, status, reason, message, generation=self.adapter.generation, now=self.now
        )

    def has(self, type_: ConditionType, reason: Reason) -> bool:
        before = find_condition(self.adapter.status.conditions, type_)
        return before is not None and before.reason == reason and before.status is not ConditionStatus.TRUE


def status_of(adapter: Adapter, outcome: Outcome, now: datetime) -> ModelAdapterStatus:
    """The status to publish; equal to the present one when nothing is to be told."""
    writing = _Writing(adapter, now, conditions=adapter.status.conditions)
    if find_condition(writing.conditions, ConditionType.INITIALIZED) is None:
        writing.conditions = (_starting(adapter, now), *writing.conditions)
    if outcome.fault is not None:
        _say_failed(writing, *outcome.fault)
    elif outcome.instances:
        _say_loaded(writing, outcome)
    else:
        _say_missing(writing, outcome)
    return ModelAdapterStatus(
        phase=writing.phase,
        candidates=outcome.placing.candidates,
        desired_replicas=outcome.placing.desired,
        ready_replicas=len(outcome.instances),
        instances=outcome.instances,
        loaded=_loaded(adapter, outcome),
        conditions=writing.conditions,
    )


def _starting(adapter: Adapter, now: datetime) -> Condition:
    return Condition(
        type=ConditionType.INITIALIZED,
        status=ConditionStatus.UNKNOWN,
        observed_generation=adapter.generation,
        last_transition_time=rfc3339(now),
        reason=Reason.PENDING,
        message="Starting reconciliation",
    )


def _loaded(adapter: Adapter, outcome: Outcome) -> tuple[LoadedAdapter, ...]:
    """Pods that hold it, by name: those of the status that may still, and those that have it now."""
    assert adapter.spec is not None or not outcome.instances, "what cannot be read is loaded nowhere"
    stays = {each.name for each in outcome.placing.stays}  # one that lost it is about to get it again
    sources: dict[str, str] = {}
    for each in outcome.standings:
        was_there = bool(each.loaded_from) or each.name in adapter.status.instances
        if each.name in stays or (was_there and each.held not in (Held.NO, Held.BASE)):
            url = each.loaded_from or (adapter.spec.artifact_url if adapter.spec is not None else "")
            if each.word is not None and each.word.loads and each.held is Held.YES:
                url = each.word.artifact_url
            sources[each.name] = url
    return tuple(LoadedAdapter(pod=pod, artifact_url=url) for pod, url in sorted(sources.items()))


def _say_loaded(writing: _Writing, outcome: Outcome) -> None:
    adapter, count = writing.adapter, len(outcome.instances)
    was_rescheduled = writing.has(ConditionType.SCHEDULED, Reason.RESCHEDULING) or _is_rescheduled(adapter)
    reason = Reason.RESCHEDULED if was_rescheduled else Reason.SCHEDULED
    writing.say(ConditionType.SCHEDULED, True, reason, f"scheduled on {count} pod(s)")
    writing.say(ConditionType.BOUND, True, Reason.BOUND, f"bound to {count} pod(s)")
    if outcome.refusal is not None:
        _say_refused(writing, outcome.refusal)
        return
    if not outcome.is_in_place:
        writing.phase = AdapterPhase.BOUND
        writing.say(
            ConditionType.READY, False, Reason.UNAVAILABLE, "adapter is loaded, and its EndpointSlice is being written"
        )
        return
    writing.phase = AdapterPhase.SCALED if outcome.placing.is_scaled_down else AdapterPhase.RUNNING
    writing.say(ConditionType.RESOURCE_CREATED, True, Reason.RESOURCES_CREATED, "Service and EndpointSlice are there")
    writing.say(
        ConditionType.READY, True, Reason.AVAILABLE, f"ModelAdapter {adapter.namespace}/{adapter.name} is ready"
    )


def _is_rescheduled(adapter: Adapter) -> bool:
    before = find_condition(adapter.status.conditions, ConditionType.SCHEDULED)
    return before is not None and before.reason == Reason.RESCHEDULED


def _say_refused(writing: _Writing, refusal: Refusal) -> None:
    reason = Reason.SERVICE_CREATE_ERROR if refusal.is_service else Reason.ENDPOINT_SLICE_CREATE_ERROR
    writing.phase = AdapterPhase.RESOURCE_CREATED
    writing.say(ConditionType.RESOURCE_CREATED, False, reason, refusal.message)
    writing.say(ConditionType.READY, False, reason, refusal.message)


def _say_failed(writing: _Writing, reason: Reason, message: str) -> None:
    writing.phase = AdapterPhase.FAILED
    writing.say(ConditionType.BOUND, False, reason, message)
    writing.say(ConditionType.READY, False, reason, message)


def _say_missing(writing: _Writing, outcome: Outcome) -> None:
    """No Pod has it. The first that fits:

    1. it was somewhere and other Pods may take it; 2. no Pod is ready; 3. all ready Pods failed, or did so before and
    are tried again; 4. none can be chosen; 5. one was chosen; 6. it is on its way.
    """
    adapter, placing = writing.adapter, outcome.placing
    if find_condition(writing.conditions, ConditionType.BOUND) is not None:
        writing.say(ConditionType.BOUND, False, Reason.NOT_BOUND, "bound to no pod")
    if placing.candidates == 0:
        text = f"no ready pods for ModelAdapter {adapter.namespace}/{adapter.name}"
        writing.say(ConditionType.READY, False, Reason.NO_READY_PODS, text)
        if adapter.status.instances and find_condition(writing.conditions, ConditionType.SCHEDULED) is not None:
            writing.say(ConditionType.SCHEDULED, False, Reason.RESCHEDULING, "its pods are gone")
        return
    if failure := _failure(writing, outcome):
        _say_failed(writing, Reason.LOADING_ERROR, failure)
        return
    is_migrating = bool(adapter.status.instances) or writing.has(ConditionType.READY, Reason.MIGRATING)
    if is_migrating and not placing.chosen:
        writing.say(ConditionType.READY, False, Reason.MIGRATING, "its pods are gone, others are to take it")
        writing.say(ConditionType.SCHEDULED, False, Reason.RESCHEDULING, "its pods are gone, others are to take it")
        return
    if placing.hindrance is not None:
        text = f"ModelAdapter {adapter.namespace}/{adapter.name} {placing.hindrance.message}"
        writing.say(ConditionType.SCHEDULED, False, placing.hindrance.reason, text)
        writing.say(ConditionType.READY, False, placing.hindrance.reason, text)
        return
    if placing.chosen:
        _say_scheduled(writing, placing.chosen)
    text = f"adapter is not loaded on any of the {placing.candidates} candidate pods"
    writing.say(ConditionType.READY, False, Reason.UNAVAILABLE, text)


def _say_scheduled(writing: _Writing, pods: Sequence[str]) -> None:
    is_again = writing.has(ConditionType.SCHEDULED, Reason.RESCHEDULING) or _is_rescheduled(writing.adapter)
    text = (
        f"ModelAdapter {writing.adapter.namespace}/{writing.adapter.name} has selected {len(pods)} pods for "
        f"scheduling: [{' '.join(pods)}]"
    )
    writing.phase = AdapterPhase.SCHEDULED
    writing.say(ConditionType.SCHEDULED, True, Reason.RESCHEDULED if is_again else Reason.SCHEDULED, text)


def _failure(writing: _Writing, outcome: Outcome) -> str:
    """Why all candidates failed; empty while one of them still may take it for the first time.

    While failed Pods are tried again the last words stand, so that the status does not flap with every try.
    """
    status = writing.adapter.status
    active = [each for each in outcome.standings if each.pod.is_active]
    is_open = any(not each.trouble for each in active)
    before = find_condition(status.conditions, ConditionType.READY)
    was_failed = before is not None and before.reason == Reason.LOADING_ERROR
    has_failed = any(each.has_failed for each in active)
    if was_failed and before is not None and before.observed_generation == writing.adapter.generation:
        is_retried = any(each.is_in_flight or each.held is Held.NOT_KNOWN for each in active)
        is_told = all(each.word is not None or each.held is not Held.NO for each in active if each.has_failed)
        if has_failed and (is_retried or not is_told):
            return before.message
    if is_open or not active:
        return ""
    causes = "; ".join(f"pod {each.name}: {each.trouble}" for each in active)
    return bounded(f"Loading failed on all pods: {causes}")

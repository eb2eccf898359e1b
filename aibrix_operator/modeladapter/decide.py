"""The decision of one pass over one adapter: snapshot and memory in, the next safe steps and memory out. Pure.

1. Deleted: unload it wherever it may be, then let it go.
2. Finalizer. 3. Place: where it stays, is loaded, is let go. 4. Service and EndpointSlices. 5. Status and annotations.

Routes follow what is there: a Pod is told of (``status.instances``) only when its engine has the adapter and the
EndpointSlice has the Pod, and its engine is told to unload only when gateways have had time to hear that the status no
longer tells of the Pod, or that the adapter is being deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from aibrix_operator.api import names
from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.api.conditions import find_condition
from aibrix_operator.api.modeladapter import ConditionType, Reason
from aibrix_operator.modeladapter import retries
from aibrix_operator.modeladapter.holding import Held, Standing, held_by
from aibrix_operator.modeladapter.memory import NOTICE_S, Memory, remember
from aibrix_operator.modeladapter.placing import Placing, place
from aibrix_operator.modeladapter.publish import Outcome, status_of
from aibrix_operator.modeladapter.retries import Tries
from aibrix_operator.modeladapter.snapshot import Adapter, PodFacts, Refusal, Snapshot, Verdict
from aibrix_operator.modeladapter.steps import (
    AddFinalizer,
    Annotate,
    CreateService,
    Load,
    MakeRoute,
    Plan,
    Publish,
    RemoveFinalizer,
    RemoveRoute,
    Step,
    Tell,
    Unload,
    WriteSlice,
)

NO_RIGHT = (
    "HTTPRoutes and ReferenceGrants may not be written: the chart's value modelAdapters.httpRoutes gives the right"
)


def decide(snapshot: Snapshot, memory: Memory, now: datetime, policy: Policy) -> tuple[Plan, Memory]:
    """What to do next about the adapter."""
    adapter, was_forbidden = snapshot.adapter, memory.route.is_forbidden
    memory = _counted(snapshot, remember(memory, snapshot))
    standings = [_standing(snapshot, memory, pod) for pod in snapshot.pods]
    told = _news(snapshot, memory, standings)
    if memory.route.is_forbidden and not was_forbidden:
        told.append(Tell("Warning", Reason.ROUTE_FORBIDDEN, NO_RIGHT))
    if adapter.is_deleting:
        if memory.retiring_since_s is None:
            memory = replace(memory, retiring_since_s=snapshot.now_s)
        plan = _retire(snapshot, memory, standings)
        return Plan((*told, *plan.steps), plan.look_after_s), memory
    if adapter.spec is None:
        placing = Placing(0, 0, ())
        outcome = Outcome(placing, standings, (), False, fault=(Reason.INVALID_SPEC, adapter.spec_error))
        return Plan(_publish(adapter, outcome, now)), memory
    if not adapter.has_finalizer:
        return Plan((AddFinalizer(),)), memory
    fault = None
    if snapshot.name_holder:
        fault = (Reason.NAME_IN_USE, f"ModelAdapter {snapshot.name_holder} is older and serves this name")
    placing = place(adapter, standings, policy, now, is_wanted=fault is None)
    resources = _resources(snapshot, placing)
    if not resources:
        memory = replace(memory, refusal=None)
    refusal = memory.refusal
    outcome = _outcome(snapshot, placing, standings, fault, refusal)
    is_waiting = bool(resources) and refusal is None
    refused_for_s = refusal.again_at_s - snapshot.now_s if refusal is not None and resources else 0.0
    steps: list[Step] = [*told, *(resources if refused_for_s <= 0 else ())]
    annotations = _annotations(adapter, memory, standings, placing)
    if annotations:
        # The status goes with the version that was looked at, which this write ends: the next pass publishes.
        steps += annotations
    elif not (is_waiting and _says_nothing_new(adapter, outcome)):
        steps += _publish(adapter, outcome, now)
    route_after_s = None
    if _wants_route(adapter) and outcome.instances and not snapshot.is_route_in_flight:
        if snapshot.now_s >= memory.route.again_at_s:
            steps.append(MakeRoute())
        else:
            route_after_s = memory.route.again_at_s - snapshot.now_s
    steps += [Tell("Warning", Reason.LOST, f"pod {each.name} lost it, loading it again") for each in placing.lost]
    steps += [Load(each.pod.target, adapter.spec.artifact_url) for each in placing.loads]
    unloads, unload_after_s = _unloads(snapshot, memory, placing.unloads)
    steps += unloads
    waits = [placing.look_after_s, refused_for_s if refused_for_s > 0 else None, route_after_s, unload_after_s]
    return Plan(tuple(steps), min((wait for wait in waits if wait is not None), default=None)), memory


def _standing(snapshot: Snapshot, memory: Memory, pod: PodFacts) -> Standing:
    word = memory.words.get(pod.target.uid)
    sources = {entry.pod: entry.artifact_url for entry in snapshot.adapter.status.loaded}
    loaded_from = sources.get(pod.name, "")
    if word is not None and word.loads and word.verdict is Verdict.DONE:
        loaded_from = word.artifact_url
    return Standing(
        pod=pod,
        held=held_by(pod, snapshot.adapter.name, word),
        word=word,
        tries=_tries(snapshot.adapter, memory, pod),
        is_in_flight=pod.target.uid in snapshot.in_flight,
        loaded_from=loaded_from,
    )


def _tries(adapter: Adapter, memory: Memory, pod: PodFacts) -> Tries:
    """Newest first. What failed before the Pod turned ready, or was another Pod, is over."""
    fresh_since = pod.ready_since or pod.created_at
    if pod.target.uid in memory.tries:
        return retries.since(memory.tries[pod.target.uid], fresh_since)
    return retries.tries_of(adapter.annotations, pod.name, fresh_since)


def _counted(snapshot: Snapshot, memory: Memory) -> Memory:
    """``memory`` with the tries that ended since. What a list shows to be there has not failed."""
    by_uid = {pod.target.uid: pod for pod in snapshot.pods}
    # An edited spec may cure what failed, so it begins to count anew.
    tries = dict.fromkeys(by_uid, Tries()) if _is_edited(snapshot.adapter, memory) else dict(memory.tries)
    for call in snapshot.called:
        pod = by_uid.get(call.pod_uid)
        if pod is None or not call.loads:
            continue
        before = _tries(snapshot.adapter, Memory(tries=tries), pod)
        is_done = call.verdict is Verdict.DONE
        tries[call.pod_uid] = Tries() if is_done else Tries(before.count + 1, call.ended_at)
    counted = replace(memory, tries=tries)
    for pod in snapshot.pods:
        held = held_by(pod, snapshot.adapter.name, memory.words.get(pod.target.uid))
        if held is Held.YES and _tries(snapshot.adapter, counted, pod).count:
            tries[pod.target.uid] = Tries()
    return replace(memory, tries=tries, generation=snapshot.adapter.generation)


def _is_edited(adapter: Adapter, memory: Memory) -> bool:
    """Whether the spec is another one than was looked at last, by us or by whoever wrote the status."""
    if memory.generation:
        return memory.generation != adapter.generation
    seen = find_condition(adapter.status.conditions, ConditionType.READY)
    return seen is not None and seen.observed_generation != adapter.generation


def _news(snapshot: Snapshot, memory: Memory, standings: Sequence[Standing]) -> list[Step]:
    """Events about calls that ended: one for all that went well, one for each that did not."""
    by_uid = {each.pod.target.uid: each for each in standings}
    steps: list[Step] = []
    for loads, reason, verb in ((True, Reason.LOADED, "loaded on"), (False, Reason.UNLOADED, "unloaded from")):
        pods = [
            by_uid[call.pod_uid].name
            for call in snapshot.called
            if call.loads is loads and call.verdict is Verdict.DONE and call.pod_uid in by_uid
        ]
        if pods:
            steps.append(Tell("Normal", reason, f"{verb} {', '.join(sorted(pods))}"))
    for call in snapshot.called:
        each = by_uid.get(call.pod_uid)
        if each is None:
            continue
        match call.loads, call.verdict:
            case _, Verdict.DONE:
                continue
            case True, _:
                steps.append(Tell("Warning", Reason.LOADING_ERROR, f"pod {each.name}: {call.message}"))
                if memory.tries.get(call.pod_uid, Tries()).count == retries.MAX_TRIES:
                    text = f"pod {each.name} failed {retries.MAX_TRIES} times and is not tried any more"
                    steps.append(Tell("Warning", Reason.GIVEN_UP, text))
            case _:
                steps.append(Tell("Warning", Reason.UNLOAD_FAILED, f"pod {each.name}: {call.message}"))
    return steps


# --- deletion


def _retire(snapshot: Snapshot, memory: Memory, standings: Sequence[Standing]) -> Plan:
    """Tell every engine that may have it, once, whatever comes of it; then the route and the finalizer go."""
    adapter = snapshot.adapter
    if not adapter.has_finalizer:
        return Plan()
    since_s = memory.retiring_since_s or snapshot.now_s
    holders = [each for each in standings if _may_hold(adapter, each, since_s)]
    steps, unload_after_s = _unloads(snapshot, memory, [each for each in holders if not each.is_in_flight])
    if _wants_route(adapter) and not memory.route.is_removed:
        # What kept it from being made does not keep it from being removed at once.
        is_failing = not (memory.route.is_made or memory.route.is_forbidden)
        wait_s = memory.route.again_at_s - snapshot.now_s if is_failing else 0.0
        if wait_s > 0:
            return Plan(tuple(steps), wait_s if unload_after_s is None else min(wait_s, unload_after_s))
        if not snapshot.is_route_in_flight:
            steps.append(RemoveRoute())
        return Plan(tuple(steps), unload_after_s)
    if holders or any(each.is_in_flight for each in standings):
        return Plan(tuple(steps), unload_after_s)
    return Plan((RemoveFinalizer(),))


def _unloads(snapshot: Snapshot, memory: Memory, standings: Sequence[Standing]) -> tuple[list[Step], float | None]:
    """Those that are due, and after how many seconds the next is; None: no other."""
    targets = [each.pod.target for each in standings]
    left_s = {target.uid: memory.withdrawn_s[target.uid] + NOTICE_S - snapshot.now_s for target in targets}
    waits = [seconds for seconds in left_s.values() if seconds > 0]
    return [Unload(target) for target in targets if left_s[target.uid] <= 0], min(waits, default=None)


def _wants_route(adapter: Adapter) -> bool:
    """Whether the adapter asks for an HTTPRoute, by the name that it is served under."""
    return bool(adapter.labels.get(names.MODEL_LABEL) or adapter.annotations.get(names.MODEL_LABEL))


def _may_hold(adapter: Adapter, standing: Standing, since_s: float) -> bool:
    """Whether its engine is to be told: once after ``since_s``, whatever was tried before."""
    pod = standing.pod
    if pod.is_terminating or not pod.target.ip:
        return False
    is_told = standing.word is not None and not standing.word.loads and standing.word.ended_at_s >= since_s
    if is_told or standing.held is Held.BASE:
        return False
    was_told_of = standing.name in adapter.status.instances or bool(standing.loaded_from)
    was_sent = standing.word is not None and standing.word.verdict in (Verdict.DONE, Verdict.UNKNOWN)
    return standing.held is Held.YES or was_told_of or was_sent


# --- Service, EndpointSlices, status


def _resources(snapshot: Snapshot, placing: Placing) -> list[Step]:
    """What is missing so that the Service leads to the Pods that stay. Nothing is made while there are none."""
    wanted: dict[int, set[str]] = {port: set() for port in snapshot.slices}
    for each in placing.stays:
        wanted.setdefault(each.pod.target.engine_port, set()).add(each.pod.target.ip)
    steps: list[Step] = []
    if placing.stays and not snapshot.has_service:
        steps.append(CreateService())
    steps += [
        WriteSlice(port, tuple(sorted(addresses)))
        for port, addresses in sorted(wanted.items())
        if snapshot.slices.get(port, frozenset()) != frozenset(addresses)
    ]
    return steps


def _outcome(
    snapshot: Snapshot,
    placing: Placing,
    standings: Sequence[Standing],
    fault: tuple[Reason, str] | None,
    refusal: Refusal | None,
) -> Outcome:
    """A Pod is told of once its slice has it. Where the API server refuses slices, gateways that go by the status still
    find it, and ``Ready`` stays false."""
    before = snapshot.adapter.status.instances
    instances = tuple(
        each.name
        for each in placing.stays
        if each.name in before or refusal is not None or _has_endpoint(snapshot, each)
    )
    is_in_place = snapshot.has_service and all(
        _has_endpoint(snapshot, each) for each in placing.stays if each.name in instances
    )
    return Outcome(placing, standings, instances, is_in_place, refusal if not is_in_place else None, fault)


def _has_endpoint(snapshot: Snapshot, standing: Standing) -> bool:
    target = standing.pod.target
    return target.ip in snapshot.slices.get(target.engine_port, ())


def _says_nothing_new(adapter: Adapter, outcome: Outcome) -> bool:
    """Whether the status may wait for the slice that is being written: one write tells both."""
    return (
        set(outcome.instances) == set(adapter.status.instances)
        and bool(outcome.placing.stays)
        and adapter.status.phase is not None
    )


def _publish(adapter: Adapter, outcome: Outcome, now: datetime) -> list[Step]:
    status = status_of(adapter, outcome, now)
    return [Publish(status)] if status != adapter.status else []


def _annotations(adapter: Adapter, memory: Memory, standings: Sequence[Standing], placing: Placing) -> list[Step]:
    """The difference between what the annotations say and what they are to say."""
    wanted: dict[str, str | None] = retries.stale(adapter.annotations, (each.name for each in standings))
    for each in standings:
        kept = retries.tries_of(adapter.annotations, each.name, None)
        if each.pod.target.uid in memory.tries or each.tries != kept:
            wanted |= retries.noted(each.name, each.tries)
    if placing.scheduled is not None:
        wanted[names.SCHEDULED_PODS_ANNOTATION] = ",".join(placing.scheduled) or None
    changed = {key: value for key, value in wanted.items() if adapter.annotations.get(key) != value}
    return [Annotate(changed)] if changed else []

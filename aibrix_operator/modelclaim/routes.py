"""The route annotations that Pods should carry, and the patches that bring them there."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Instance, InstancePhase, Reason
from aibrix_operator.api.route import Route, RouteReason, RouteState
from aibrix_operator.modelclaim.accounts import Account
from aibrix_operator.modelclaim.draft import Draft, pod_ref
from aibrix_operator.modelclaim.snapshot import Pod
from aibrix_operator.modelclaim.starting import has_started
from aibrix_operator.modelclaim.steps import Annotate

_STATES = {
    InstancePhase.ACTIVE: RouteState.ACTIVE,
    InstancePhase.ACTIVATING: RouteState.ACTIVATING,
    InstancePhase.SLEEPING: RouteState.SLEEPING,
    InstancePhase.FAILED: RouteState.FAILED,
}


@functools.lru_cache(maxsize=1 << 16)
def route_of(model: str, state: RouteState, port: int, reason: RouteReason = "") -> str:
    """The annotation's value: a port only while requests may go there."""
    port = port if state is RouteState.ACTIVE else 0
    return Route(model=model, port=port, state=state, reason=reason).to_annotation()


def plan_routes(account: Account, instances: Mapping[str, Instance], draft: Draft) -> None:
    """Patch what differs on one Pod. ``instances`` (claim UID → instance) is what this pass makes of them.

    Taking a route away takes the claim's wake request along, seen or not. Other claims' keys are left as they are.
    """
    pod = account.pod
    if pod.is_annotating or not pod.is_running:
        return
    wanted: dict[str, str] = {}
    for sitting in account.sittings:
        instance = instances.get(sitting.claim.uid)
        if (pod.uid, sitting.claim.name) in draft.unrouted:
            continue
        if instance is None or sitting.claim.is_deleting or not has_started(sitting, draft, pod.uid):
            continue
        key = names.route_annotation(sitting.claim.name)
        state = RouteState.SLEEPING if sitting.claim.uid in draft.off_route else _STATES[instance.phase]
        is_moving = state is RouteState.FAILED and bool(instance.reason)
        is_waiting = state is RouteState.SLEEPING and instance.reason == Reason.WAITING_FOR_ROOM
        reason: RouteReason = "WaitingForRoom" if is_waiting else "Moving" if is_moving else ""
        text = route_of(sitting.claim.model, state, instance.port, reason)
        if is_moving and sitting.instance.phase is not InstancePhase.FAILED:
            text = pod.annotations.get(key, "")  # the move is published first
        is_joining = state is RouteState.ACTIVE and pod.annotations.get(key) != text
        if is_joining and (sitting.claim.is_writing or pod.reading.snapshot is None):
            # A record under way could change the limit that it is routed with, and a recorded phase may be long past.
            text = pod.annotations.get(key, "")
        if sitting.claim.uid in draft.about_to_serve:
            text = pod.annotations.get(key, "")
        if text:
            wanted[key] = text
    values: dict[str, str | None] = {k: v for k, v in wanted.items() if pod.annotations.get(k) != v}
    leaving = {claim for uid, claim in draft.unrouted if uid == pod.uid}
    seated = {s.claim.name for s in account.sittings if not s.claim.is_deleting} - leaving
    seated |= _keep_adopted(pod, values, draft)
    for key in pod.annotations:
        claim = key.removeprefix(names.ROUTE_PREFIX).removeprefix(names.WAKE_PREFIX)
        if key.startswith(names.ROUTE_PREFIX) and key not in wanted and claim not in seated:
            values[key] = values[names.wake_annotation(claim)] = None
        elif key.startswith(names.WAKE_PREFIX) and claim not in seated:
            values[key] = None
    for uid, claim in draft.drop_wakes:
        if uid == pod.uid:
            values[names.wake_annotation(claim)] = None
    if values:
        draft.steps.append(Annotate(pod_ref(pod), values))


def _keep_adopted(pod: Pod, values: dict[str, str | None], draft: Draft) -> set[str]:
    """Names of claims whose record is about to come back here: their routes stay, but not as active ones for an engine
    that may not serve. ``values`` is added to."""
    kept = set()
    for claim in draft.fleet.claims if draft.adopted or draft.awaited else ():
        instance, key = draft.adopted.get(claim.uid), names.route_annotation(claim.name)
        if claim.uid in draft.awaited or (instance is not None and instance.pod == pod.name):
            kept.add(claim.name)
        if instance is not None and instance.pod == pod.name and instance.phase is not InstancePhase.ACTIVE:
            text = route_of(claim.model, _STATES[instance.phase], instance.port)
            if key in pod.annotations and pod.annotations[key] != text:
                values[key] = text
    return kept

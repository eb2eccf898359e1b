"""The end of a claim: route off, drain, stop, finalizer off. One safe step a pass."""

from __future__ import annotations

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Instance, InstancePhase, Reason
from aibrix_operator.modelclaim.accounts import Account, Sitting
from aibrix_operator.modelclaim.draft import BOOT_PACE_S, ROUND_S, Draft, claim_ref, pod_ref, sitting_of
from aibrix_operator.modelclaim.snapshot import Claim, Pod
from aibrix_operator.modelclaim.steps import Deactivate, EventType, Note, SetFinalizer
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.wire import EnginePhase

DRAIN_S = 5.0
"""An engine keeps running at least this long after its route went: gateways catch up."""
LONGEST_DRAIN_S = 90.0
"""Counted from when the deletion was first seen, because the API server's clock, which dates it, may be minutes from
ours; after it the engine is stopped with whatever it still serves. A restart begins anew: it only delays."""

ORPHAN_S = 30.0
"""An engine that answers to no instance is stopped after so long."""


def retire(claim: Claim, draft: Draft) -> None:
    """Take the next step of a claim that is being deleted."""
    if draft.claim_memory(claim).deleting_since_s is None:
        draft.remember_claim(claim, deleting_since_s=draft.now.monotonic_s)
    if claim.is_writing or not claim.has_finalizer:
        return
    stopped = [
        _stop(claim, instance, draft) for instance in claim.status.instances
    ]  # each of them, not up to the first
    if all(stopped):
        draft.steps.append(SetFinalizer(claim_ref(claim), present=False))


def _stop(claim: Claim, instance: Instance, draft: Draft) -> bool:
    """Whether this engine was asked to stop, or there is nothing left to ask; else do what comes before."""
    pod = draft.fleet.pods.get(instance.pod)
    if pod is None or not pod.is_running or pod.uid in draft.claim_memory(claim).asked_to_stop:
        return True
    if pod.is_annotating or names.route_annotation(claim.name) in pod.annotations:
        return False  # the route goes first, and is seen gone before the engine is touched
    sitting = sitting_of(draft.accounts, claim, instance.pod)
    if _belongs_to_another(claim, sitting, pod):
        return True
    now_s = draft.now.monotonic_s
    since_s = draft.claim_memory(claim).drain_since_s
    if since_s is None:
        since_s = now_s
        draft.remember_claim(claim, drain_since_s=since_s)
    engine = None if sitting is None else sitting.engine
    # An engine taken off the route (its limit did not hold, say) still answers what reached it before.
    # What cannot be read may serve too, whatever its record says: another hand may have written that.
    is_unread = pod.reading.snapshot is None
    may_serve = instance.phase is InstancePhase.ACTIVE or is_unread or (engine is not None and engine.ready)
    if may_serve and not _may_stop(claim, sitting, pod, since_s, draft):
        draft.look_again(pod, min(BOOT_PACE_S, 1.0))
        draft.wake_pod_at(pod, now_s + 1.0)
        return False
    if pod.busy_since_s is None and pod.uid not in draft.asked:
        request = wire.DeactivateRequest(model_name=claim.model)
        draft.ask(pod, Deactivate(pod_ref(pod), claim.uid, request))
    return False


def _may_stop(claim: Claim, sitting: Sitting | None, pod: Pod, since_s: float, draft: Draft) -> bool:
    """Whether a serving engine has drained, or has had its time. What cannot be read counts as busy."""
    is_drained = draft.now.monotonic_s - since_s >= DRAIN_S and _is_idle(sitting, pod)
    if is_drained:
        return True
    deleting_since_s = draft.claim_memory(claim).deleting_since_s
    if deleting_since_s is None or draft.now.monotonic_s < deleting_since_s + LONGEST_DRAIN_S:
        return False
    if pod.busy_since_s is None and pod.uid not in draft.asked:
        message = f"model {claim.model} on pod {pod.name} was stopped with requests left, 90 s after its deletion"
        draft.note(claim, Note(EventType.WARNING, Reason.DRAIN_TIMED_OUT, message))
    return True


def _is_idle(sitting: Sitting | None, pod: Pod) -> bool:
    if pod.reading.snapshot is None or sitting is None:
        return False
    engine = sitting.engine
    if engine is None or not engine.ready:
        return True  # gone, asleep, failed or restarting: no request is answered by it
    return engine.request_metrics_observed and engine.requests_running + engine.requests_waiting == 0


def stop_orphans(account: Account, draft: Draft) -> None:
    """Stop engines of ours that no instance answers for: a stop was lost, or somebody took the claim's finalizer off.

    Each is given time to be claimed by a write that our caches have yet to show. Engines that carry no claim of this
    namespace are a user's, and are left alone.
    """
    pod, now_s, before = account.pod, draft.now.monotonic_s, draft.card_memory(account.pod).orphans
    if pod.reading.snapshot is None or not pod.is_running:
        return
    # A claim made anew under its name waits for its namesake's engine to go, and is not served by it.
    seated = {s.claim.model for s in account.sittings if s.engine is not None}
    ours = [
        (e.claim_ref.uid, e)
        for e in account.strangers
        if e.claim_ref is not None and e.claim_ref.namespace == pod.namespace and e.model_name not in seated
        if e.claim_ref.uid not in draft.adopted
    ]
    due = {uid: before.get(uid, now_s + ORPHAN_S) for uid, e in ours if e.phase is not EnginePhase.STOPPING}
    for uid, engine in ours:
        if due.get(uid, float("inf")) <= now_s and draft.is_free(pod):
            draft.ask(pod, Deactivate(pod_ref(pod), uid, wire.DeactivateRequest(model_name=engine.model_name)))
            due[uid] = now_s + ROUND_S
    for due_s in due.values():
        draft.wake_pod_at(pod, max(due_s, now_s + BOOT_PACE_S))
    if due != before:
        draft.remember_card(pod, orphans=due)


def _belongs_to_another(claim: Claim, sitting: Sitting | None, pod: Pod) -> bool:
    """Whether the runtime serves this model name for another claim: stopping by name would hit that one."""
    if pod.reading.snapshot is None or (sitting is not None and sitting.engine is not None):
        return False
    return any(m.model_name == claim.model for m in pod.reading.snapshot.models)

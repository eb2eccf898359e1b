"""One pass: from a snapshot and what is remembered to the next safe steps. Pure; equal inputs give equal plans.

The order within a pass is the order in which a Pod's runtime is offered to those who need it, since it takes one step
at a time: engines to stop, divisions under way, engines kept off their route by a wrong limit, engines to start, claims
to place (oldest first), and cards that are divided anew.
"""

from __future__ import annotations

import dataclasses

from aibrix_operator.api.modelclaim import Instance, InstancePhase, ModelClaimStatus, Reason
from aibrix_operator.modelclaim import (
    activity,
    admitting,
    adopting,
    cards,
    health,
    making_room,
    moving,
    outcomes,
    publish,
    retire,
    routes,
    sleeping,
    starting,
    waking,
)
from aibrix_operator.modelclaim.accounts import Account, Sitting, is_booting, is_serving, open_accounts
from aibrix_operator.modelclaim.draft import BOOT_PACE_S, ROUND_S, Draft, Findings, claim_ref
from aibrix_operator.modelclaim.health import Verdict
from aibrix_operator.modelclaim.memory import Memory, WakeRequest
from aibrix_operator.modelclaim.publish import Scheduled
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Moment
from aibrix_operator.modelclaim.steps import EventType, Note, Plan, SetFinalizer, WriteStatus


def decide(fleet: Fleet, memory: Memory, now: Moment) -> tuple[Plan, Memory]:
    """The plan of one pass over a namespace, and what to remember for the next."""
    granted = frozenset(uid for uid, m in memory.claims.items() if m.wake_request and m.wake_request.is_granted)
    draft = Draft(
        fleet,
        now,
        open_accounts(fleet, granted, {uid: c.hold.seat_bytes for uid, c in memory.cards.items() if c.hold}),
        dict(memory.claims),
        dict(memory.cards),
        passes=memory.passes + 1,
        activities=dict(memory.activities),
        policy_errors=dict(memory.policy_errors),
        policy_due_s=dict(memory.policy_due_s),
    )
    found = Findings()
    cards.remember_accounts(draft)
    making_room.release_holds(draft)
    outcomes.fold(draft)
    adopting.find_adopted(draft)
    activity.watch(draft)
    for claim in fleet.claims:
        if claim.is_deleting:
            retire.retire(claim, draft)
    for account in draft.accounts.values():
        retire.stop_orphans(account, draft)
    sleeping.call_off_unseated(draft)
    for account in draft.accounts.values():
        sleeping.continue_sleeps(account, draft)
        waking.wake_sleepers(account, draft)
        sleeping.put_back(account, draft)
    cards.continue_divisions(draft, found.records)
    for account in draft.accounts.values():
        _look_at(account, draft, found)
    for account in draft.accounts.values():
        for sitting in account.sittings:
            starting.start_engine(account, sitting, draft)
    if fleet.is_whole:
        admitting.place_waiting(draft, found)
    cards.start_divisions(draft, found.records)
    _look_at_fallen(draft, found)
    if fleet.is_whole:
        sleeping.watch_policies(draft)
    sleeping.apply_policies(draft)
    for claim in fleet.claims:
        _publish(claim, draft, found)
    for account in draft.accounts.values():
        routes.plan_routes(account, found.instances[account.pod.name], draft)
    return draft.finish()


def _look_at(account: Account, draft: Draft, found: Findings) -> None:
    """Judge every instance on a Pod that runs."""
    pod, snapshot = account.pod, account.pod.reading.snapshot
    if not pod.is_running:
        return
    for sitting in account.sittings:
        if sitting.is_recorded and not sitting.claim.is_deleting:
            _look_at_one(account, sitting, draft, found)
    if snapshot is not None and any(is_booting(engine, snapshot) for engine in snapshot.models):
        draft.look_again(pod, BOOT_PACE_S)
        # A reading that says nothing new wakes no pass, and only a pass asks for the next early reading.
        draft.wake_pod_at(pod, draft.now.monotonic_s + BOOT_PACE_S)


def _look_at_one(account: Account, sitting: Sitting, draft: Draft, found: Findings) -> None:
    pod, claim = account.pod, sitting.claim
    memory = draft.claim_memory(claim)
    request = memory.wake_request
    is_judged = account.card is not None or memory.lent_on == pod.uid
    verdict = health.judge(sitting, pod, was_asleep=request is not None, is_judged=is_judged)
    held_notes = starting.hold_to_record(account, sitting, verdict, draft)
    found.notes[claim.uid] += (*held_notes, *verdict.notes)  # a limit is set before its engine is routed
    if verdict.instance.phase is InstancePhase.SLEEPING:
        if sitting.instance.phase is not InstancePhase.SLEEPING and not claim.is_writing:
            found.notes[claim.uid] += sleeping.asleep_note(sitting, pod.name, draft)
        verdict = _with_reason(verdict, request)
    if starting.is_about_to_serve(account, sitting, verdict, draft):
        draft.about_to_serve.add(claim.uid)
    sleeping.watch_sleeper(account, sitting, draft)
    found.instances[pod.name][claim.uid] = moving.call_off(account, sitting, draft, found) or verdict.instance


def _look_at_fallen(draft: Draft, found: Findings) -> None:
    """Judge again who serves and whose record falls below what its engine is held to, as it does where another hand
    wrote it: the engine leaves the route with its record."""
    for account in draft.accounts.values():
        for sitting in account.sittings:
            pod, record = found.records.get(sitting.claim.name, ("", 0))
            if pod == account.pod.name and record < sitting.limit_in_force and is_serving(sitting):
                instance = sitting.instance.model_copy(update={"kv_limit_bytes": record})
                _look_at_one(account, dataclasses.replace(sitting, instance=instance), draft, found)


def _with_reason(verdict: Verdict, request: WakeRequest | None) -> Verdict:
    """The sleeper with why it is not woken, if it was asked for and waits."""
    reason = Reason.WAITING_FOR_ROOM if request is not None and request.waits_for else ""
    if verdict.instance.reason == reason:
        return verdict
    return dataclasses.replace(verdict, instance=verdict.instance.model_copy(update={"reason": str(reason)}))


def _publish(claim: Claim, draft: Draft, found: Findings) -> None:
    """Write the claim's status when it says something else than what is published."""
    if claim.is_writing or claim.uid in found.unsaid:
        return
    if claim.is_deleting:
        if claim.has_finalizer:
            _publish_records(claim, draft, found)
        return
    if claim.status.instances and not claim.has_finalizer:
        draft.steps.append(SetFinalizer(claim_ref(claim), present=True))
        return
    if claim.uid in draft.about_to_serve and claim.name not in found.records:
        return
    instances, start_error = _instances_after(claim, draft, found)
    scheduled = _scheduled(claim, instances, draft, found)
    status = publish.derive_status(
        claim,
        instances,
        candidates=found.candidates.get(claim.uid, claim.status.candidates),
        scheduled=scheduled,
        start_error=start_error,
        now=draft.now.wall,
    )
    notes = [*found.notes[claim.uid], *_refusal_notes(claim, scheduled, status, start_error)]
    _write_if_different(claim, status, notes, draft)


def _instances_after(claim: Claim, draft: Draft, found: Findings) -> tuple[list[Instance], str]:
    """The instances to be recorded, and why a start was refused if one is taken back."""
    memory, start_error = draft.claim_memory(claim), ""
    record_pod, record_bytes = found.records.get(claim.name, ("", 0))
    if claim.uid in draft.adopted:
        return [draft.adopted[claim.uid]], ""
    instances: list[Instance] = []
    for before in claim.status.instances:
        pod = draft.fleet.pods.get(before.pod)
        if pod is None or not pod.is_running:
            draft.remember_claim(claim, wait=None, refusal=None)  # it lost its engine, and starts over
            continue
        if pod.uid in memory.refused_on or pod.uid in memory.passed_over:
            draft.takes_back = True
            back = moving.put_back(claim, draft)
            instances += back
            if back and pod.uid in memory.refused_on:
                found.notes[claim.uid].append(moving.not_moved_note(before.pod, memory.refused_on[pod.uid]))
            else:
                start_error = memory.refused_on.get(pod.uid, "")
        else:
            after = found.instances[pod.name].get(claim.uid, before)
            if pod.name == record_pod and after.kv_limit_bytes != record_bytes:
                after = after.model_copy(update={"kv_limit_bytes": record_bytes})
            instances.append(after)
    if record_pod and claim.instance_on(record_pod) is None:
        if claim.status.instances and not moving.has_left(claim, draft):
            return instances, start_error  # the new place is ready, and the old engine has yet to be asked to stop
        if claim.status.instances:
            found.notes[claim.uid].append(moving.moved_note(claim, record_pod))
            draft.remember_claim(claim, wake_request=None, going_to_sleep=None, moved_from=claim.status.instances)
        instances = [Instance(pod=record_pod, kv_limit_bytes=record_bytes)]
    return instances, start_error


def _scheduled(claim: Claim, instances: list[Instance], draft: Draft, found: Findings) -> Scheduled | None:
    """What the Scheduled condition is to say; None leaves it as it is."""
    if claim.uid in draft.adopted:
        return Scheduled(True, Reason.PLACED, f"placed on pod {instances[0].pod}")
    for instance in instances:
        if instance.phase is InstancePhase.FAILED:
            continue  # the condition keeps why it cannot move
        account = draft.accounts[instance.pod]
        sitting = next((s for s in account.sittings if s.claim.uid == claim.uid), None)
        if sitting is not None and starting.has_started(sitting, draft, account.pod.uid):
            return Scheduled(True, Reason.PLACED, f"placed on pod {instance.pod}")
    if instances and not claim.is_moving:
        return None
    return found.scheduled.get(claim.uid) or draft.claim_memory(claim).refusal


def _refusal_notes(claim: Claim, scheduled: Scheduled | None, status: ModelClaimStatus, start_error: str) -> list[Note]:
    """Warnings for what the conditions newly say."""
    notes = []
    if scheduled is not None and not scheduled.status and not publish.is_same_scheduled(claim, scheduled):
        kind = EventType.NORMAL if scheduled.reason is Reason.MAKING_ROOM else EventType.WARNING
        reason = Reason.RESCHEDULE_PENDING if claim.is_moving else scheduled.reason
        notes.append(Note(kind, reason, scheduled.message))
    if start_error:
        notes.append(Note(EventType.WARNING, Reason.ACTIVATE_FAILED, start_error))
    if claim.engine_error and status.phase is not claim.status.phase:
        message = f"invalid engineConfig parallelism: {claim.engine_error}"
        notes.append(Note(EventType.WARNING, Reason.INVALID_ENGINE_CONFIG, message))
    return notes


def _write_if_different(claim: Claim, status: ModelClaimStatus, notes: list[Note], draft: Draft) -> None:
    """Also one that says the same, as long as a write may have put the claim where it is not seen: the answer tells."""
    is_unsure = bool(claim.unsure_pods)
    if not is_unsure and (status is claim.status or status == claim.status):
        for note in notes:
            draft.note(claim, note)
        return
    now_s, written_s = draft.now.monotonic_s, draft.claim_memory(claim).written_s
    only_counted = status.model_copy(update={"candidates": claim.status.candidates}) == claim.status
    if only_counted and not is_unsure and now_s < written_s + ROUND_S:
        draft.wake_at(written_s + ROUND_S)
        return
    draft.remember_claim(claim, written_s=now_s)
    is_record = is_unsure or status.instances != claim.status.instances
    draft.steps.append(WriteStatus(claim_ref(claim), status, tuple(notes), is_record))


def _publish_records(claim: Claim, draft: Draft, found: Findings) -> None:
    """A claim that is being deleted still sits on its card, so its record follows the card's division."""
    pod, record = found.records.get(claim.name, ("", 0))
    before = claim.instance_on(pod)
    if before is None or before.kv_limit_bytes == record:
        return
    after = before.model_copy(update={"kv_limit_bytes": record})
    instances = tuple(after if i is before else i for i in claim.status.instances)
    status = claim.status.model_copy(update={"instances": instances})
    draft.steps.append(WriteStatus(claim_ref(claim), status))

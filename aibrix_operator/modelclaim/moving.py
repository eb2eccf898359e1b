"""Moving a claim off a Pod: its engine failed for good, or could not wake there. There is no live migration.

A move for a wake is written to status before anything else happens. The old engine is stopped once the new place is
ready to be recorded, and only then is the record replaced.
"""

from __future__ import annotations

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Instance, InstancePhase, Reason
from aibrix_operator.ledger.placement import Placed, Refused
from aibrix_operator.modelclaim import cards
from aibrix_operator.modelclaim.accounts import Account, Sitting, occupant
from aibrix_operator.modelclaim.draft import Draft, Findings, pod_ref, sitting_of
from aibrix_operator.modelclaim.placing import Placements
from aibrix_operator.modelclaim.snapshot import Claim
from aibrix_operator.modelclaim.steps import Deactivate, EventType, Note
from aibrix_operator.modelclaim.waking import NO_ROOM, has_room
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.wire import EnginePhase


def cannot_move(claim: Claim) -> str:
    """How a refusal of a claim that wants to move begins."""
    old = claim.status.instances[0]
    if old.reason:
        return f"model {claim.model} cannot move from pod {old.pod}, where it could not wake: "
    return f"model {claim.model} cannot move from failed pod {old.pod}: "


def help_helpless(draft: Draft, placements: Placements, found: Findings) -> None:
    """Move sleepers that cannot wake where they are, if another Pod could take them now; else they wait, or a refused
    wake is given up."""
    for pod_name, claim in draft.helpless:
        request = draft.claim_memory(claim).wake_request
        before = found.instances[pod_name].get(claim.uid)
        if request is None or before is None or claim.is_writing:
            continue
        answer: Placed | Refused | None = Refused("NoMatchingPods", claim.seat_error)
        if claim.seat is not None:
            answer = placements.choose(claim, claim.seat, placements.group_of(claim), frozenset({pod_name}))
        if isinstance(answer, Placed):
            reason = Reason.WAKE_FAILED if request.refusal else Reason.NO_ROOM_TO_WAKE
            changes = {"phase": InstancePhase.FAILED, "reason": str(reason)}
            found.instances[pod_name][claim.uid] = before.model_copy(update=changes)
            why = request.refusal or NO_ROOM
            message = f"model {claim.model} cannot wake on pod {pod_name}, and moves to another pod: {why}"
            found.notes[claim.uid].append(Note(EventType.WARNING, Reason.MOVING, message))
        elif request.refusal and answer is not None:
            draft.remember_claim(claim, wake_request=None, refused_wake=request.requested_at)
            draft.drop_wakes.add((draft.fleet.pods[pod_name].uid, claim.name))
            message = (
                f"model {claim.model} could not be woken on pod {pod_name}, and no other pod can take it: "
                f"{request.refusal}"
            )
            draft.note(claim, Note(EventType.WARNING, Reason.WAKE_FAILED, message))


def call_off(account: Account, sitting: Sitting, draft: Draft, found: Findings) -> Instance | None:
    """The instance as it was before its move, if the cause of that is gone before anything was stopped; else None."""
    instance, claim, pod = sitting.instance, sitting.claim, account.pod
    if instance.phase is not InstancePhase.FAILED or claim.is_writing or not draft.is_free(pod):
        return None  # the call under way may be the one that stops it
    if pod.uid in draft.claim_memory(claim).asked_to_stop:
        return None
    back = _back_at(account, sitting)
    if back is None:
        return None
    found.records.pop(claim.name, None)
    for other in draft.accounts.values():
        division = draft.card_memory(other.pod).division
        if division is not None and division.newcomer == claim.name:
            cards.drop(other.pod, draft)
    if back is InstancePhase.SLEEPING and instance.reason == Reason.NO_ROOM_TO_WAKE:
        message = f"model {claim.model} stays asleep on pod {pod.name}, whose card can take it back now"
    else:
        message = f"model {claim.model} stays on pod {pod.name}, where its engine runs"
    draft.note(claim, Note(EventType.NORMAL, Reason.MOVE_CALLED_OFF, message))
    assert sitting.engine is not None
    return instance.model_copy(update={"phase": back, "reason": "", "port": sitting.engine.port})


def _back_at(account: Account, sitting: Sitting) -> InstancePhase | None:
    """The phase that a moving instance goes back to; None: its cause stands.

    An engine that runs has nothing to move for: it was started again past us or woke after all, or another hand has
    written that it failed. Its seat was charged all the time, and whether it may serve is judged as for any other.
    A sleeper moves for want of room or because its wake was refused: any other reason was not given for a move.
    """
    engine, reason = sitting.engine, sitting.instance.reason
    if engine is not None and engine.phase is EnginePhase.ACTIVE and engine.ready:
        return InstancePhase.ACTIVATING
    if not sitting.is_asleep or reason == Reason.WAKE_FAILED:
        return None
    if reason != Reason.NO_ROOM_TO_WAKE:
        return InstancePhase.SLEEPING
    card = account.beside
    can_wake = card is not None and has_room(card.with_occupant(occupant(sitting, account.pod, False)))
    return InstancePhase.SLEEPING if can_wake else None


def has_left(claim: Claim, draft: Draft) -> bool:
    """Whether every old engine was asked to stop, so that the record can be replaced; else take the next step to it."""
    left = [_leave(claim, instance, draft) for instance in claim.status.instances]  # each of them, not up to the first
    return all(left)


def _leave(claim: Claim, instance: Instance, draft: Draft) -> bool:
    pod = draft.fleet.pods.get(instance.pod)
    if pod is None or not pod.is_running:
        return True
    draft.unrouted.add((pod.uid, claim.name))
    if pod.uid in draft.claim_memory(claim).asked_to_stop:
        return True
    if pod.is_annotating or names.route_annotation(claim.name) in pod.annotations:
        return False
    sitting = sitting_of(draft.accounts, claim, instance.pod)
    if sitting is None or (pod.reading.snapshot is not None and sitting.engine is None):
        return True  # there is nothing to stop
    if pod.busy_since_s is None and pod.uid not in draft.asked:
        draft.ask(pod, Deactivate(pod_ref(pod), claim.uid, wire.DeactivateRequest(model_name=claim.model)))
    return False


def put_back(claim: Claim, draft: Draft) -> tuple[Instance, ...]:
    """The failed instances that a new one replaced, if that was not started and their Pods are still there. Their seat
    was given up with their engine, so they are promised nothing."""
    pods, left = draft.fleet.pods, draft.claim_memory(claim).moved_from
    return tuple(i.model_copy(update={"kv_limit_bytes": 0}) for i in left if i.pod in pods and pods[i.pod].is_running)


def not_moved_note(to_pod: str, error: str) -> Note:
    """The Event of a replacement that its runtime did not start."""
    return Note(EventType.WARNING, Reason.RESCHEDULE_FAILED, f"activate replacement on pod {to_pod}: {error}")


def moved_note(claim: Claim, to_pod: str) -> Note:
    """The Event of a replaced record."""
    old = claim.status.instances[0]
    because = {
        str(Reason.NO_ROOM_TO_WAKE): "because its card could not take it back from sleep,",
        str(Reason.WAKE_FAILED): "because it could not be woken there,",
    }.get(old.reason, "after terminal engine failure")
    message = f"model {claim.model} moved {because} from pod {old.pod} to pod {to_pod}"
    return Note(EventType.NORMAL, Reason.RESCHEDULED, message)

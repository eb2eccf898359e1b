"""Waking engines that were asked for: whose turn it is, room for its seat, the call, and the end of the request.

A request is the wake annotation that the gateway put on the Pod. Its age counts from when we first saw it, because the
gateway's clock may be off. A wake goes in steps: *granted* (its seat is charged again and the card
divided for it), *sent*, and over when the engine serves.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import InstancePhase, Reason
from aibrix_operator.ledger.card import Activity, Card, Occupant
from aibrix_operator.modelclaim import activity, sleeping
from aibrix_operator.modelclaim.accounts import Account, Sitting, is_asked_for, lent_bytes, occupant
from aibrix_operator.modelclaim.draft import BOOT_PACE_S, ROUND_S, Draft, pod_ref
from aibrix_operator.modelclaim.memory import WakeRequest
from aibrix_operator.modelclaim.parse import parse_time
from aibrix_operator.modelclaim.snapshot import Claim, Pod, Result
from aibrix_operator.modelclaim.steps import EventType, Note, PodRef, Wake
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import Done, Refused
from aibrix_operator.runtime_api.wire import EnginePhase

LIFETIME_S = 300.0
NO_ROOM = "its card is promised more than it has"
_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the order of requests on one card comes to."""

    grants: tuple[Sitting, ...] = ()
    """Those whose seat fits beside everyone earlier."""
    makes_room: tuple[Sitting, Sitting] | None = None
    """(the sleeper, the idle neighbour that is put to sleep for it)."""
    waits: tuple[tuple[Sitting, str], ...] = ()
    """Those that wait, with the reason: behind the one that room is made for, or without any help on this card."""
    helpless: tuple[Sitting, ...] = ()
    """Of those that wait: no neighbour could be put to sleep for them."""


def requests_on(account: Account) -> list[Sitting]:
    """Sleepers of the Pod that were asked for, oldest request first; what is no time sorts before all."""
    asked = [s for s in account.sittings if sleeping.is_asleep(s) and is_asked_for(s, account.pod) and s.is_recorded]

    def key(sitting: Sitting) -> tuple[datetime, str]:
        text = account.pod.annotations[names.wake_annotation(sitting.claim.name)]
        return parse_time(text) or _FIRST, sitting.claim.name

    return sorted((s for s in asked if not s.claim.is_deleting), key=key)


def take_turns(account: Account, draft: Draft) -> Turn:
    """Walk the requests of one card oldest first, on an account that grows by every seat that fits."""
    requests = requests_on(account)
    if not requests:
        return Turn()
    if account.card is None:
        return _turns_unjudged(account, requests)
    pod = account.pod
    card = Card(
        pod.name,
        account.card.usable_bytes,
        tuple(occupant(s, pod, lent_bytes(s, pod) is not None) for s in account.sittings if s.is_charged),
    )
    grants: list[Sitting] = []
    waits: list[tuple[Sitting, str]] = []
    helpless: list[Sitting] = []
    makes_room: tuple[Sitting, Sitting] | None = None
    for sitting in requests:
        with_seat = card.with_occupant(occupant(sitting, pod, False))
        if has_room(with_seat):
            card = with_seat
            grants.append(sitting)
            continue
        waits.append((sitting, NO_ROOM))
        if neighbour := _neighbour_for(account, with_seat, draft):
            makes_room = makes_room or (sitting, neighbour)
            card = with_seat  # it comes before those behind it, who must not take what is being made for it
        else:
            helpless.append(sitting)
    return Turn(tuple(grants), makes_room, tuple(waits), tuple(helpless))


def _turns_unjudged(account: Account, requests: list[Sitting]) -> Turn:
    """Of a card that cannot be judged: those whose seat was their own all the time, if all that is known fits."""
    if not account.has_cards:
        return Turn(grants=tuple(requests))
    why = f"its card cannot be accounted for: {account.hole or 'it has not been read yet'}"
    kept = tuple(s for s in requests if _has_kept_seat(s, account.pod))
    waits = tuple((s, why) for s in requests if s not in kept)
    if _is_overdrawn_by_the_known(account):
        return Turn(waits=waits + tuple((s, NO_ROOM) for s in kept))
    return Turn(grants=kept, waits=waits)


def idle_neighbours(account: Account, draft: Draft) -> list[tuple[float, Sitting]]:
    """(idle seconds, sitting) of engines that may be put to sleep to make room, idle longest first."""
    lifecycle = None if account.pod.pool is None else account.pod.pool.lifecycle
    if lifecycle is None or not account.pod.lends_seats or account.card is None:
        return []
    if any(s.is_asleep and lent_bytes(s, account.pod) is None for s in account.sittings):
        return []  # a sleeper that cannot be measured: what room there is cannot be known
    idle = [(activity.idle_s(account, s, draft), s) for s in sleeping.sleepable(account, draft)]
    window = lifecycle.make_room_after_s
    for seconds, _ in idle:
        if seconds < window:
            draft.wake_at(draft.now.monotonic_s + max(window - seconds, 0.1))
    return sorted(((i, s) for i, s in idle if i >= window), key=lambda pair: (-pair[0], pair[1].claim.name))


def _has_kept_seat(sitting: Sitting, pod: Pod) -> bool:
    """Whether the sleeper's seat was its own all the time, so that it can wake on a card that cannot be judged: its
    pool keeps reserves, and its record shows that it did before, and so does its limit: another hand may have written
    the record."""
    seat, limit = sitting.claim.seat, sitting.instance.kv_limit_bytes
    if sitting.limit_in_force >= 0:
        limit = min(limit, sitting.limit_in_force)
    return not pod.lends_seats and (seat is None or limit >= seat.kv_floor_bytes)


def _is_overdrawn_by_the_known(account: Account) -> bool:
    """Whether a card that cannot be judged is too small for what is known alone: everybody's seat, and limits in force
    beyond the floors. A sleeper that was declared larger, or whose card is not divided for it yet, does not wake
    because a neighbour's engine is still exiting."""
    reading = account.pod.reading
    assert reading.snapshot is not None, "a sleeper that was asked for was read"
    usable = reading.snapshot.usable_bytes
    most = usable if usable > 0 else reading.largest_bytes  # the most that was ever measured; 0: never
    known = 0
    for sitting in account.sittings:
        seat, limit = sitting.claim.seat, sitting.limit_in_force
        if sitting.is_charged and seat is not None:
            limit = sitting.instance.kv_limit_bytes if limit < 0 else limit
            known += seat.footprint_bytes + max(seat.kv_floor_bytes, limit)
    return 0 < most < known


def has_room(card: Card) -> bool:
    """Whether nothing is promised or held past what the card has."""
    return card.room_ever_bytes >= 0 and card.room_now_bytes >= 0


def _neighbour_for(account: Account, with_seat: Card, draft: Draft) -> Sitting | None:
    """The idle neighbour to put to sleep first, if putting all of them to sleep would make room."""
    idle = [s for _, s in idle_neighbours(account, draft)]
    card = with_seat
    for sitting in idle:
        card = card.with_occupant(as_asleep(sitting, draft, account.pod))
    return idle[0] if idle and has_room(card) else None


def as_asleep(sitting: Sitting, draft: Draft, pod: Pod) -> Occupant:
    """The neighbour as it would be charged asleep: what it held the last time, next to nothing if it never slept."""
    held = draft.claim_memory(sitting.claim).asleep_bytes or 1
    awake = occupant(sitting, pod, False)
    return dataclasses.replace(
        awake, activity=Activity.ASLEEP, kv_mapped_bytes=0, requests=0, lent_footprint_bytes=held
    )


def wake_sleepers(account: Account, draft: Draft) -> None:
    """Take the next step for every wake request on the Pod."""
    pod = account.pod
    if not pod.is_running or pod.reading.is_pending:
        return
    for sitting in account.sittings:
        if sitting.is_recorded:
            _keep_request(account, sitting, draft)
    turn = take_turns(account, draft)
    for sitting in turn.grants:
        _grant(account, sitting, draft)
    for sitting, why in turn.waits:
        _wait(account, sitting, why, draft)
    draft.helpless += [(pod.name, s.claim) for s in turn.helpless]
    if turn.makes_room is not None and sleeping.may_choose(account, draft):
        waker, neighbour = turn.makes_room
        seconds = activity.idle_s(account, neighbour, draft)
        sleeping.send_to_sleep(
            account, neighbour, seconds, "make-room", draft, waker=waker.claim.model, for_uid=waker.claim.uid
        )


def _keep_request(account: Account, sitting: Sitting, draft: Draft) -> None:
    """Note a request when it is first seen, and end it when it is served, too old, or was taken back."""
    pod, claim, now_s = account.pod, sitting.claim, draft.now.monotonic_s
    value = pod.annotations.get(names.wake_annotation(claim.name))
    memory = draft.claim_memory(claim)
    known = memory.wake_request
    if value is None or claim.is_deleting:
        if known is not None:
            draft.remember_claim(claim, wake_request=None)
        return
    if value == memory.refused_wake:
        draft.drop_wakes.add((pod.uid, claim.name))
        return
    if known is None or known.requested_at != value or known.pod_uid != pod.uid:
        known = WakeRequest(pod.uid, value, now_s, is_again=value == memory.served_wake)
        draft.remember_claim(claim, wake_request=known)
    phase = sitting.instance.phase
    is_expired = now_s - known.first_seen_s >= LIFETIME_S
    if phase in (InstancePhase.SLEEPING, InstancePhase.ACTIVATING) or sitting.is_asleep:
        if not is_expired:
            draft.wake_pod_at(pod, known.first_seen_s + LIFETIME_S)
            return
        if phase is InstancePhase.SLEEPING:
            message = (
                f"model {claim.model} stays asleep on pod {pod.name}: it could not be woken within 5m0s of the request"
            )
            draft.note(claim, Note(EventType.WARNING, Reason.WAKE_REQUEST_EXPIRED, message))
    elif memory.going_to_sleep is not None and memory.going_to_sleep.sent_s is not None:
        return  # it may be asleep by now; the next reading tells
    refused, served = (value, memory.served_wake) if is_expired else ("", value)
    draft.remember_claim(claim, wake_request=None, refused_wake=refused, served_wake=served)
    draft.drop_wakes.add((pod.uid, claim.name))


def _grant(account: Account, sitting: Sitting, draft: Draft) -> None:
    """Charge the seat, have the card divided for it, then call the runtime: a step a pass."""
    pod, claim, now_s = account.pod, sitting.claim, draft.now.monotonic_s
    request = draft.claim_memory(claim).wake_request
    if request is None:
        return
    if request.refusal:
        draft.helpless.append((pod.name, claim))
        return
    _take_over_hold(account, draft)
    if not request.is_granted or request.waits_for:
        request = dataclasses.replace(request, is_granted=True, waits_for="")
        draft.remember_claim(claim, wake_request=request)
        draft.wake_pod_at(pod, now_s)
        return
    if request.is_done or (request.sent_s is not None and now_s < request.sent_s + ROUND_S):
        draft.look_again(pod, BOOT_PACE_S)
        draft.wake_pod_at(pod, now_s + BOOT_PACE_S)
        return
    if not draft.is_free(pod) or claim.is_writing or not _is_divided_for(account, sitting, draft):
        draft.wake_pod_at(pod, now_s + BOOT_PACE_S)
        return
    if any(_is_waking(other, pod, draft) for other in account.sittings if other is not sitting):
        draft.wake_pod_at(pod, now_s + BOOT_PACE_S)
        return
    operation = f"controller-wake/{pod.uid}/{claim.uid}/{request.requested_at}"
    if request.is_again:  # the runtime would take it for the one that it has carried out
        operation += f"/{round(request.first_seen_s * 1_000)}"
    draft.ask(pod, Wake(pod_ref(pod), claim.uid, wire.WakeRequest(model_name=claim.model, operation_id=operation)))
    draft.remember_claim(claim, wake_request=dataclasses.replace(request, sent_s=now_s))


def _take_over_hold(account: Account, draft: Draft) -> None:
    """Let go what is held for a new claim where the seat does not fit beside it: clients wait for the sleeper."""
    if account.card is not None and account.card.reserved_bytes and not has_room(account.card):
        draft.remember_card(account.pod, hold=None)


def _is_divided_for(account: Account, sitting: Sitting, draft: Draft) -> bool:
    """Whether the card is held as planned with the seat in it: nobody above its record, the waker right at its own."""
    if account.card is None:
        return True
    pod, memory = account.pod, draft.card_memory(account.pod)
    if memory.division is not None or memory.divided_for != account.composition or not draft.is_settled(account):
        return False
    is_held = all(
        s.limit_in_force <= s.instance.kv_limit_bytes for s in account.sittings if s.is_charged and s is not sitting
    ) and sitting.limit_in_force in (-1, sitting.instance.kv_limit_bytes)
    if not is_held and draft.now.monotonic_s >= memory.next_round_s:
        draft.remember_card(pod, divided_for=frozenset())  # an earlier division was left unfinished: once more
    return is_held


def _is_waking(sitting: Sitting, pod: Pod, draft: Draft) -> bool:
    """Whether it was sent to sleep or woken: by us or, as its reading and its request show, by who led before."""
    engine, memory = sitting.engine, draft.claim_memory(sitting.claim)
    is_booting = engine is not None and engine.phase is EnginePhase.BOOTING and not engine.restart_count
    is_sent = memory.wake_request is not None and memory.wake_request.sent_s is not None
    is_falling_asleep = memory.going_to_sleep is not None and memory.going_to_sleep.sent_s is not None
    return is_sent or is_falling_asleep or (is_booting and is_asked_for(sitting, pod))


def _wait(account: Account, sitting: Sitting, why: str, draft: Draft) -> None:
    """It stays asleep until there is room: say so once, and look again soon."""
    pod, claim = account.pod, sitting.claim
    request = draft.claim_memory(claim).wake_request
    if request is None or request.is_done:
        return
    if not request.waits_for:
        message = f"model {claim.model} stays asleep on pod {pod.name}: {why}"
        draft.note(claim, Note(EventType.WARNING, Reason.WAITING_FOR_ROOM, message))
    draft.remember_claim(claim, wake_request=dataclasses.replace(request, waits_for=why, is_granted=False))
    draft.look_again(pod, BOOT_PACE_S)
    draft.wake_pod_at(pod, draft.now.monotonic_s + BOOT_PACE_S)


def came_of_wake(claim: Claim, pod: PodRef, result: Result, draft: Draft) -> None:
    """Fold the answer of a wake call. What is unknown is asked again with the same operation."""
    request = draft.claim_memory(claim).wake_request
    if request is None or request.pod_uid != pod.uid:
        return
    match result:
        case Done(answer=wire.OperationResponse(applied=applied)):
            draft.remember_claim(claim, wake_request=dataclasses.replace(request, is_done=True))
            if applied:
                message = f"model {claim.model} is waking on pod {pod.name}, as asked at {request.requested_at}"
                draft.note(claim, Note(EventType.NORMAL, Reason.WAKING, message))
        case Refused(message=text):
            draft.remember_claim(claim, wake_request=dataclasses.replace(request, refusal=text or "refused"))
        case _:
            pass

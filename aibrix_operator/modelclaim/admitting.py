"""Placing the claims that need a Pod, oldest first: new ones, and those that move."""

from __future__ import annotations

import dataclasses

from aibrix_operator.api.modelclaim import Reason
from aibrix_operator.ledger import division as ledger_division
from aibrix_operator.ledger.card import Occupant, Seat
from aibrix_operator.ledger.placement import Placed, Refused
from aibrix_operator.modelclaim import cards, dividing, making_room, moving
from aibrix_operator.modelclaim.draft import ROUND_S, Draft, Findings, claim_ref
from aibrix_operator.modelclaim.memory import Cause
from aibrix_operator.modelclaim.placing import Placements, next_wait, refusal
from aibrix_operator.modelclaim.publish import Scheduled
from aibrix_operator.modelclaim.snapshot import Claim
from aibrix_operator.modelclaim.steps import SetFinalizer

TURN_S = 10.0
"""So long a claim keeps the Pod that it would get while it is written to; one that cannot be must not block others."""


def place_waiting(draft: Draft, found: Findings) -> None:
    """Try to place every claim that needs a Pod; then make room for those that found none."""
    placements = Placements(draft)
    moving.help_helpless(draft, placements, found)
    pending = {d.newcomer for c in draft.cards.values() if (d := c.division) is not None and d.newcomer}
    for claim in draft.fleet.claims:
        if claim.is_deleting or claim.engine_error:
            continue
        if claim.is_writing:
            _keep_turn(claim, placements, draft)
            continue
        if claim.status.instances and not claim.has_finalizer:
            continue  # somebody took it off, and it is put back before anything else
        group = placements.group_of(claim)
        found.candidates[claim.uid] = len(group.pods)
        if claim.uid in draft.adopted or claim.uid in draft.awaited:
            _adopt(claim, draft, found)
            continue
        if claim.name in pending or (claim.status.instances and not claim.is_moving):
            continue
        if any(found.instances[i.pod].get(claim.uid, i).phase is not i.phase for i in claim.status.instances):
            continue  # its move was just called off
        if claim.seat is None:
            if not claim.status.instances:
                message = f"{claim.model} is not placed: {claim.seat_error}"
                found.scheduled[claim.uid] = Scheduled(False, Reason.INVALID_PER_GPU, message)
        elif not placements.is_waiting(claim, group):
            _place(claim, claim.seat, placements, draft, found)
    making_room.make_room(draft, placements)


def _adopt(claim: Claim, draft: Draft, found: Findings) -> None:
    """It gets its record back, after its finalizer; one whose engine may be somewhere is told nothing yet."""
    if claim.uid not in draft.adopted:
        found.unsaid.add(claim.uid)
    elif not claim.has_finalizer:
        found.unsaid.add(claim.uid)
        draft.steps.append(SetFinalizer(claim_ref(claim), present=True))
    else:
        pod = draft.fleet.pods[draft.adopted[claim.uid].pod]
        cards.deal_again(pod, draft)  # its record may have been more than its engine is held to
        draft.remember_claim(claim, wait=None, refusal=None, turn_until_s=None, started_on=frozenset({pod.uid}))


def _keep_turn(claim: Claim, placements: Placements, draft: Draft) -> None:
    """A claim whose write is not acknowledged yet keeps the Pod that it would get from those behind it."""
    if claim.seat is None or claim.status.instances or claim.writing_instances:
        return
    group = placements.group_of(claim)
    if not placements.is_waiting(claim, group):
        answer = placements.choose(claim, claim.seat, group)
        if isinstance(answer, Placed) and _has_turn(claim, draft):
            placements.seat(answer.pod, claim, claim.seat)


def _has_turn(claim: Claim, draft: Draft) -> bool:
    """Whether it may go on keeping others off a Pod that nothing is recorded for yet."""
    until_s = draft.claim_memory(claim).turn_until_s
    if until_s is None:
        until_s = draft.now.monotonic_s + TURN_S
        draft.remember_claim(claim, turn_until_s=until_s)
    has_turn = draft.now.monotonic_s < until_s
    if has_turn:
        draft.wake_at(until_s)
    return has_turn


def _place(claim: Claim, seat: Seat, placements: Placements, draft: Draft, found: Findings) -> None:
    """Choose a Pod and take the first step there, or remember the refusal."""
    leaving = frozenset(i.pod for i in claim.status.instances)
    answer = placements.choose(claim, seat, placements.group_of(claim), leaving)
    if isinstance(answer, Placed):
        _begin(claim, seat, answer.pod, placements, draft, found)
    elif isinstance(answer, Refused):
        condition, kind = refusal(answer)
        if claim.status.instances:
            condition = dataclasses.replace(condition, message=moving.cannot_move(claim) + condition.message)
        wait = next_wait(draft.claim_memory(claim).wait, kind, claim, draft)
        draft.remember_claim(claim, wait=wait, refusal=condition, turn_until_s=None)
        draft.wake_at(wait.until_s)
    else:
        # A Pod between two steps may take it, and its next reading wakes the next pass.
        _wait_for_its_answer(claim, draft, found)


def _wait_for_its_answer(claim: Claim, draft: Draft, found: Findings) -> None:
    """A claim that has been told nothing yet is told where it stands in one write, if that is known soon."""
    if claim.status.conditions:
        return
    until_s = draft.claim_memory(claim).silent_until_s
    if until_s is None:
        until_s = draft.now.monotonic_s + ROUND_S
        draft.remember_claim(claim, silent_until_s=until_s)
    if draft.now.monotonic_s < until_s:
        found.unsaid.add(claim.uid)
        draft.wake_at(until_s)


def _begin(claim: Claim, seat: Seat, pod: str, placements: Placements, draft: Draft, found: Findings) -> None:
    if not claim.has_finalizer:
        # Before anything is recorded, so that no claim can vanish whose engine has yet to be stopped.
        if _has_turn(claim, draft):
            placements.seat(pod, claim, seat)
        found.unsaid.add(claim.uid)
        draft.steps.append(SetFinalizer(claim_ref(claim), present=True))
        return
    account = draft.accounts[pod]
    placements.seat(pod, claim, seat)
    draft.remember_claim(claim, refusal=None, turn_until_s=None)
    if account.plan_card is None:
        found.records[claim.name] = (pod, 0)
        return
    card = account.plan_card
    if placements.held_for.get(pod) == claim.uid:
        card = dataclasses.replace(card, reserved_bytes=0)
        draft.remember_card(account.pod, hold=None)
    targets = ledger_division.divide(card.with_occupant(Occupant(claim.name, seat)))
    division = dividing.plan(account, Cause.PLACEMENT, targets, claim.name, seat)
    cards.apply(account, division, dividing.begin(account, division), draft, found.records)

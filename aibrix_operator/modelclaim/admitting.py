"""Placing the claims that need a Pod, oldest first: new ones, and those that move."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from aibrix_operator.api.modelclaim import Reason
from aibrix_operator.ledger import division as ledger_division
from aibrix_operator.ledger.card import Occupant, Seat
from aibrix_operator.ledger.placement import Placed, Refused
from aibrix_operator.modelclaim import cards, dividing, making_room, moving
from aibrix_operator.modelclaim.draft import Draft, Findings
from aibrix_operator.modelclaim.memory import Cause
from aibrix_operator.modelclaim.placing import Placements, next_wait, refusal
from aibrix_operator.modelclaim.publish import Scheduled
from aibrix_operator.modelclaim.snapshot import Claim

FIRST_WRITE_WITHIN = timedelta(seconds=10)
"""So long a claim keeps its turn without its finalizer; one that cannot be written to must not block the others."""


def place_waiting(draft: Draft, found: Findings) -> None:
    """Try to place every claim that needs a Pod; then make room for those that found none."""
    placements = Placements(draft)
    moving.help_helpless(draft, placements, found)
    pending = {d.newcomer for c in draft.cards.values() if (d := c.division) is not None and d.newcomer}
    for claim in draft.fleet.claims:
        if claim.is_deleting or claim.engine_error:
            continue
        if not claim.has_finalizer or claim.is_writing:
            _keep_place(claim, placements, draft)
            continue
        group = placements.group_of(claim)
        found.candidates[claim.uid] = len(group.pods)
        if claim.name in pending or (claim.status.instances and not moving.is_moving(claim)):
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


def _keep_place(claim: Claim, placements: Placements, draft: Draft) -> None:
    """A young claim whose first write is not acknowledged yet keeps the Pod that it would get from those behind it."""
    is_new = draft.now.wall - claim.created_at < FIRST_WRITE_WITHIN and not claim.status.instances
    if claim.seat is None or not is_new or claim.writing_instances:
        return
    group = placements.group_of(claim)
    if not placements.is_waiting(claim, group):
        answer = placements.choose(claim, claim.seat, group)
        if isinstance(answer, Placed):
            placements.seat(answer.pod, claim, claim.seat)


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
        draft.remember_claim(claim, wait=wait, refusal=condition)
        draft.wake_at(wait.until_s)
    # Else a Pod between two steps may take it, and its next reading wakes the next pass.


def _begin(claim: Claim, seat: Seat, pod: str, placements: Placements, draft: Draft, found: Findings) -> None:
    account = draft.accounts[pod]
    placements.seat(pod, claim, seat)
    draft.remember_claim(claim, refusal=None)
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

"""Making room for a claim that waits: idle engines of one card sleep, one a pass, while its seat is held there.

Only in pools that give sleepers' seats away, and for one claim of a pool at a time: the oldest that can be helped.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from aibrix_operator.api import conditions
from aibrix_operator.api.modelclaim import ConditionType, Reason
from aibrix_operator.ledger import figures
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim import sleeping, waking
from aibrix_operator.modelclaim.accounts import Account, Sitting
from aibrix_operator.modelclaim.draft import BOOT_PACE_S, Draft
from aibrix_operator.modelclaim.memory import Hold
from aibrix_operator.modelclaim.placing import Placements
from aibrix_operator.modelclaim.publish import Scheduled
from aibrix_operator.modelclaim.snapshot import Claim

HOLD_S = 120.0


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """Whom to put to sleep on one card, in order."""

    account: Account
    sleepers: tuple[tuple[float, Sitting], ...]
    """(idle seconds, engine), idle longest first."""
    is_known: bool
    """Whether it is known to be enough; an engine that never slept may hold more asleep than hoped."""

    @property
    def key(self) -> tuple[bool, int, float, str]:
        """1. known first   2. known: fewest sleeps, unknown: most room now   3. first sleeper idle longest   4. name"""
        room = 0 if self.account.card is None else self.account.card.room_now_bytes
        size = len(self.sleepers) if self.is_known else -room
        return (not self.is_known, size, -self.sleepers[0][0], self.account.pod.name)


def release_holds(draft: Draft) -> None:
    """End holds whose time is over, whose claim is gone, placed, or can no longer be placed, or whose pool lends no
    more."""
    waiting = {c.uid: c for c in draft.fleet.claims if not c.status.instances}
    for account in draft.accounts.values():
        hold = draft.card_memory(account.pod).hold
        if hold is None:
            continue
        claim = waiting.get(hold.claim_uid)
        is_over = draft.now.monotonic_s >= hold.until_s or not account.pod.lends_seats
        if claim is None or not claim.may_be_placed or is_over:
            _end_hold(account, draft)
            if claim is not None:
                draft.remember_claim(claim, wait=None)  # what it is told next is no longer that room is made
        else:
            draft.wake_at(hold.until_s)


def _end_hold(account: Account, draft: Draft) -> None:
    """Give the seat back: the next pass finds room come free here, and tries the claims that were refused for it."""
    draft.remember_card(account.pod, hold=None)
    draft.wake_at(draft.now.monotonic_s)


def make_room(draft: Draft, placements: Placements) -> None:
    """Take the next step for the oldest waiting claim of each pool that room can be made for."""
    served: set[str] = set()
    for claim in draft.fleet.claims:
        refused = draft.claim_memory(claim).refusal
        if claim.status.instances or claim.is_writing or not claim.may_be_placed or refused is None:
            continue
        assert claim.seat is not None
        if refused.reason not in (Reason.NO_MATCHING_PODS, Reason.MAKING_ROOM):
            continue
        pods = [p for p in placements.group_of(claim).pods if p.lends_seats and p.pool is not None]
        pools = {p.pool.uid for p in pods if p.pool is not None}
        if not pools or pools & served:
            continue
        accounts = [draft.accounts[p.name] for p in pods]
        holding = next((a for a in accounts if _is_held_for(a, claim, draft)), None)
        if holding is not None and (_is_between_steps(holding, draft) or not sleeping.may_choose(holding, draft)):
            served |= pools  # its card is on its way to what was planned
            _keep_telling(claim, draft)
            continue
        plans = [plan for a in accounts if (plan := plan_room(a, claim, claim.seat, draft))]
        held = [plan for plan in plans if plan.account is holding]
        if holding is not None and not held:
            if _has_room_at_last(holding, claim.seat):
                served |= pools
                continue
            _end_hold(holding, draft)
        if plans:
            served |= pools
            _sleep_first(claim, claim.seat, min(held or plans, key=lambda plan: plan.key), draft)


def plan_room(account: Account, claim: Claim, seat: Seat, draft: Draft) -> RoomPlan | None:
    """Whom to put to sleep on this card so that the seat fits; None when nobody helps, or somebody else comes first."""
    hold = draft.card_memory(account.pod).hold
    if account.card is None or (hold is not None and hold.claim_uid != claim.uid):
        return None
    if account.pod.name in draft.newcomers or draft.card_memory(account.pod).division is not None:
        return None
    turn = waking.take_turns(account, draft)
    if turn.grants or turn.makes_room is not None:
        return None  # clients wait for those
    card = dataclasses.replace(account.card, reserved_bytes=0)
    sleepers: list[tuple[float, Sitting]] = []
    for idle_s, sitting in waking.idle_neighbours(account, draft):
        sleepers.append((idle_s, sitting))
        if draft.claim_memory(sitting.claim).asleep_bytes is None:
            return RoomPlan(account, tuple(sleepers), is_known=False)
        card = card.with_occupant(waking.as_asleep(sitting, draft, account.pod))
        if card.fits(seat):
            return RoomPlan(account, tuple(sleepers), is_known=True)
    return None


def _has_room_at_last(account: Account, seat: Seat) -> bool:
    """Whether what was made is enough, so that only a runtime that does not take limits or starts now stands in the
    way: the seat stays held for its time."""
    return account.card is not None and dataclasses.replace(account.card, reserved_bytes=0).fits(seat)


def _is_held_for(account: Account, claim: Claim, draft: Draft) -> bool:
    hold = draft.card_memory(account.pod).hold
    return hold is not None and hold.claim_uid == claim.uid


def _is_between_steps(account: Account, draft: Draft) -> bool:
    """Whether what the card has room for is about to be known."""
    return (
        not draft.is_free(account.pod)
        or not draft.is_settled(account)
        or account.pod.name in draft.newcomers
        or draft.card_memory(account.pod).division is not None
    )


def _keep_telling(claim: Claim, draft: Draft) -> None:
    """A try that fails while its card is being cleared is no news: the condition says that room is made, as before."""
    before = conditions.find_condition(claim.status.conditions, ConditionType.SCHEDULED)
    if before is not None and before.reason == Reason.MAKING_ROOM:
        draft.remember_claim(claim, refusal=Scheduled(False, Reason.MAKING_ROOM, before.message))


def _sleep_first(claim: Claim, seat: Seat, plan: RoomPlan, draft: Draft) -> None:
    """Hold the seat, and send the first engine of the plan to sleep if none of its card is on its way."""
    account = plan.account
    if not sleeping.may_choose(account, draft):
        draft.wake_at(draft.now.monotonic_s + BOOT_PACE_S)
        return
    if not _is_held_for(account, claim, draft):
        hold = Hold(claim.uid, seat.total_bytes, draft.now.monotonic_s + HOLD_S)
        draft.remember_card(account.pod, hold=hold)
    idle_s, sitting = plan.sleepers[0]
    sleeping.send_to_sleep(account, sitting, idle_s, "make-room", draft, waker=claim.model, for_uid=claim.uid)
    more = len(plan.sleepers) - 1
    message = (
        f"no pod has room for this model, which needs {figures.gib(seat.total_bytes)} on a card; "
        f"model {sitting.claim.model} was put to sleep on pod {account.pod.name} to make room"
        + (f", and {more} more may follow" if more else "")
    )
    draft.remember_claim(claim, refusal=Scheduled(False, Reason.MAKING_ROOM, message))

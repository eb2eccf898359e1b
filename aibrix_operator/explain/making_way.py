"""Who would have to go so that a claim fits: the smallest sets of claims on one card whose deletion does it. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

from aibrix_operator.explain import judging
from aibrix_operator.ledger.card import Card, Occupant, Seat
from aibrix_operator.ledger.placement import Placed
from aibrix_operator.modelclaim.accounts import Account
from aibrix_operator.modelclaim.snapshot import Claim, Fleet

MOST_SUGGESTIONS = 3
MOST_SETS = 5000
"""So many sets of one size are weighed, which is all of them for cards of up to 14 engines. Beyond that the engines
that hold the most are taken, which is one of the smallest sets or close to it."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Claims of one Pod that could be deleted for the claim. What they do not share is the user's to judge."""

    pod: str
    claims: tuple[str, ...]
    """To be deleted, by name; empty when it is enough to wait for those that leave."""
    leaving: tuple[str, ...]
    """Claims of this Pod that are being deleted already, by name."""
    freed_bytes: int
    """What they hold now, and what would be free of it."""
    requests: int
    """Running and waiting in their engines now; an engine that cannot be asked counts as busy with one."""


def suggest(fleet: Fleet, claim: Claim, seat: Seat, accounts: Sequence[Account]) -> tuple[Suggestion, ...]:
    """Up to three sets, best first; none when no deletion helps, as on cards that are too small or cannot be judged.

    1. the fewest claims  2. the fewest requests in their engines
    3. the least memory taken away  4. Pod and claim names
    """
    found = [s for account in accounts for s in _on_card(claim, seat, account)]
    found.sort(key=lambda s: (len(s.claims), s.requests, s.freed_bytes, s.pod, s.claims))
    sure: list[Suggestion] = []
    hopeless: set[str] = set()  # what stands in the way there besides room stands in the way of every set
    for suggestion in found:
        if len(sure) == MOST_SUGGESTIONS:
            break
        if suggestion.pod in hopeless:
            continue
        if _helps(fleet, claim, seat, suggestion):
            sure.append(suggestion)
        else:
            hopeless.add(suggestion.pod)
    return tuple(sure)


def _helps(fleet: Fleet, claim: Claim, seat: Seat, suggestion: Suggestion) -> bool:
    """Whether placement itself would put the claim there."""
    gone = frozenset((*suggestion.claims, *suggestion.leaving))
    after = judging.without_claims(judging.only_pod(fleet, suggestion.pod), gone)
    return isinstance(judging.judge_pod(after, claim, seat, suggestion.pod), Placed)


def _on_card(claim: Claim, seat: Seat, account: Account) -> list[Suggestion]:
    """The sets of the smallest size that do on this card, in no order."""
    card = account.card
    if card is None or not card.holds_when_empty(seat):
        return []
    leaving = {s.claim.name for s in account.sittings if s.claim.is_deleting}
    # The runtime keys engines by model name, so a namesake has to go whatever room there is.
    namesakes = {s.claim.name for s in account.sittings if s.claim.model == claim.model}
    always = tuple(o for o in card.occupants if o.claim in leaving | namesakes)
    others = sorted((o for o in card.occupants if o not in always), key=lambda o: (-o.held_bytes, o.claim))
    return [_suggestion(account, gone, leaving) for gone in _smallest(card, seat, always, others) if gone]


def _smallest(
    card: Card, seat: Seat, always: Sequence[Occupant], others: Sequence[Occupant]
) -> list[tuple[Occupant, ...]]:
    """The smallest sets, ``always`` among each, that make room; ``others`` come largest first."""
    prefixes = [(*always, *others[:size]) for size in range(len(others) + 1)]
    largest_first = next((gone for gone in prefixes if _fits(card, seat, gone)), None)
    if largest_first is None:
        return []
    for size in range(len(largest_first) - len(always) + 1):
        if math.comb(len(others), size) > MOST_SETS:
            break
        sets = ((*always, *more) for more in itertools.combinations(others, size))
        if found := [gone for gone in sets if _fits(card, seat, gone)]:
            return found
    return [largest_first]


def _fits(card: Card, seat: Seat, gone: Sequence[Occupant]) -> bool:
    ever_bytes = card.room_ever_bytes + sum(o.promised_bytes for o in gone)
    now_bytes = card.room_now_bytes + sum(o.held_bytes for o in gone)
    return min(ever_bytes, now_bytes) >= seat.total_bytes


def _suggestion(account: Account, gone: Sequence[Occupant], leaving: Set[str]) -> Suggestion:
    return Suggestion(
        account.pod.name,
        claims=tuple(sorted(o.claim for o in gone if o.claim not in leaving)),
        leaving=tuple(sorted(o.claim for o in gone if o.claim in leaving)),
        freed_bytes=sum(o.held_bytes for o in gone),
        requests=sum(1 if o.requests is None else o.requests for o in gone if o.claim not in leaving),
    )

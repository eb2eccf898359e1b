"""How much KV each engine of a card may map, and when a card deserves to be divided again.

Called for every placement, change of composition, wake and ten-second round. Computes limits; writes none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aibrix_operator.ledger import figures
from aibrix_operator.ledger.card import Activity, Card, Occupant

SMALLEST_MOVE_BYTES = 512 * figures.MIB
SMALLEST_MOVE_DIVISOR = 100
"""A hundredth of the card, where that is more than ``SMALLEST_MOVE_BYTES``."""


class CannotDivide(Exception):
    """The card has no plan. The message says why, in words that go into a condition as they are."""


def divide(card: Card) -> dict[str, int]:
    """Plan the KV limit in bytes of every occupant (claim name → limit).

    Each keeps what it must (``Occupant.keep_bytes``), and the spare is shared by weight, rounded down; the odd bytes go
    one each to the first claim names that have a weight. So footprints and limits sum to exactly what is usable and not
    reserved, whatever the order of the occupants. With every engine asleep the spare belongs to nobody.

    Raises CannotDivide when the engines hold more than the card has, or one declares no cost.
    """
    for occupant in card.occupants:
        if occupant.seat.footprint_bytes <= 0 or occupant.seat.kv_floor_bytes <= 0:
            raise CannotDivide(f"{occupant.claim} declares no per-GPU cost")
    spare_bytes = card.room_now_bytes
    if spare_bytes < 0:
        raise CannotDivide(f"the engines on this card hold {figures.gib(-spare_bytes)} more than it has")
    limits = {o.claim: o.keep_bytes for o in card.occupants}
    weights = {o.claim: o.weight for o in card.occupants if o.weight}  # none, and so no share, where all sleep
    total_weight = sum(weights.values())
    shares = {claim: spare_bytes * weight // total_weight for claim, weight in weights.items()}
    # Rounding down loses less than one byte an engine, so one byte for each of the first names is all there is to deal.
    odd_bytes = spare_bytes - sum(shares.values())
    for place, (claim, share) in enumerate(shares.items()):
        limits[claim] += share + (1 if place < odd_bytes else 0)
    return limits


def threshold_bytes(usable_bytes: int) -> int:
    """The smallest move of a limit for which a round divides a card again: 512 MiB, or a hundredth of a large card."""
    return max(SMALLEST_MOVE_BYTES, usable_bytes // SMALLEST_MOVE_DIVISOR)


def take_back_bytes(before: int, record: int | None, written: int) -> int:
    """The limit to which an engine returns when a division fails after it was shrunk to ``written``.

    ``before`` is the limit in force when the division began and ``record`` what its claim's status says (None or 0: no
    record). The lower of the two, so that no more is given back than was promised; never below ``written``, so that
    taking back cannot shrink.
    """
    promised = min(before, record) if record else before
    return max(promised, written)


@dataclass(frozen=True, slots=True)
class Held:
    """What the last reading shows of one engine's KV limit, beside its record."""

    claim: str
    limit_bytes: int
    """The limit in force in its segment; -1 without a segment, and then nothing can be written for it."""
    record_bytes: int = 0
    """``kvLimitBytes`` of its instance; 0 when there is none."""
    waiting: int = 0
    """Requests queued in the engine: the part of ``Occupant.requests`` that does not run."""


@dataclass(frozen=True, slots=True)
class RoundVerdict:
    """Whether the ten-second round divides the card now, and what the next round must know of this one."""

    divide: bool
    short: frozenset[str]
    """Claims found short and given at least the threshold more by this round's plan; the next ``short_before``."""


def round_verdict(
    card: Card, held: Sequence[Held], plan: Mapping[str, int], short_before: frozenset[str]
) -> RoundVerdict:
    """Judge whether a periodic round is worth its writes.

    Some limit must move by the threshold, or be that far from its record, and one of these must hold:
    1. an engine is short and gains by the plan, in this round and in the one before (a single burst moves nothing);
    2. an engine is held to something other than its record: an earlier division was left unfinished;
    3. the card is at rest and an engine is held to less than half of its plan.
    A card whose limits and footprints sum to more than it has is divided at any rate.
    Engines that the card does not charge, the plan does not know, or that have no segment are passed over.
    ``short_before`` is the previous round's ``RoundVerdict.short``; empty after a restart, which costs one round.
    """
    occupants = {o.claim: o for o in card.occupants}
    readings = [h for h in held if h.limit_bytes >= 0 and h.claim in plan and h.claim in occupants]
    threshold = threshold_bytes(card.usable_bytes)
    short = frozenset(
        h.claim for h in readings if _is_short(occupants[h.claim], h) and plan[h.claim] - h.limit_bytes >= threshold
    )
    is_worth_writing = any(max(abs(plan[h.claim] - h.limit_bytes), _unkept_bytes(h)) >= threshold for h in readings)
    has_cause = (
        bool(short & short_before)
        or any(h.limit_bytes != h.record_bytes for h in readings)
        or (_is_at_rest(card) and any(h.limit_bytes < _half(plan[h.claim]) for h in readings))
    )
    is_overdrawn = _in_force_bytes(card, readings) > card.usable_bytes
    return RoundVerdict(divide=is_overdrawn or (is_worth_writing and has_cause), short=short)


def _in_force_bytes(card: Card, readings: Sequence[Held]) -> int:
    """Footprints, and limits as far as they are known, of all that the card charges."""
    limits = {h.claim: h.limit_bytes for h in readings}
    return sum(
        o.seat.footprint_bytes + limits.get(o.claim, 0) if o.lent_footprint_bytes is None else o.lent_footprint_bytes
        for o in card.occupants
    )


def _unkept_bytes(held: Held) -> int:
    """How far an engine is held from what was promised to it; 0 without a record."""
    return abs(held.record_bytes - held.limit_bytes) if held.record_bytes else 0


def _half(size_bytes: int) -> int:
    """Half, rounded up: what is left after the rounded-down half is taken away."""
    return size_bytes - size_bytes // 2


def _is_short(occupant: Occupant, held: Held) -> bool:
    """Whether an engine that is awake and limited needs more KV, or cannot be asked and may need it."""
    if occupant.activity is Activity.ASLEEP or held.limit_bytes == 0:
        return False
    is_unreadable = occupant.activity is Activity.SERVING and occupant.requests is None
    return occupant.kv_mapped_bytes >= _half(held.limit_bytes) or held.waiting > 0 or is_unreadable


def _is_at_rest(card: Card) -> bool:
    """Whether no engine that is awake has a request, as far as all of them could be asked."""
    return all(o.requests == 0 for o in card.occupants if o.activity is Activity.SERVING)

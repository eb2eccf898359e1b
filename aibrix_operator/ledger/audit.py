"""The ledger's laws as checkers, kept apart from the code that must obey them.

Run after every step of every simulation, and counted in the operator, where the count must stay 0.
A violation is a sentence naming the Pod, the claim and both figures. Nothing here is called to decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from aibrix_operator.ledger.card import Activity, Card, Occupant


def violations(card: Card, limits: Mapping[str, int]) -> list[str]:
    """Every law of the ledger that one card breaks; empty when it keeps them all.

    ``limits`` is what was promised in bytes (claim → record, or the write under way); a claim that is absent or 0 was
    not divided for yet, and is owed its floor.
    """
    return [*over_promised(card, limits), *limits_too_low(card, limits), *reserves_lost(card, limits)]


def over_promised(card: Card, limits: Mapping[str, int]) -> list[str]:
    """Law 1: the footprints and limits that were promised on a card sum to at most what is usable."""
    promised = sum(_promise(o, limits) for o in card.occupants)
    if promised <= card.usable_bytes:
        return []
    return [f"{card.pod}: footprints and KV limits sum to {promised} bytes, and the card has {card.usable_bytes}"]


def limits_too_low(card: Card, limits: Mapping[str, int]) -> list[str]:
    """Law 2: no limit is below what the engine was seen to map, nor below the floor of an engine that is awake."""
    found = []
    for occupant in card.occupants:
        limit = limits.get(occupant.claim)
        if not limit:
            continue
        if limit < occupant.kv_mapped_bytes:
            found.append(
                f"{card.pod}: {occupant.claim} has a KV limit of {limit} bytes, and maps {occupant.kv_mapped_bytes}"
            )
        if occupant.activity is not Activity.ASLEEP and limit < occupant.seat.kv_floor_bytes:
            found.append(
                f"{card.pod}: {occupant.claim} is awake with a KV limit of {limit} bytes, "
                f"below its floor of {occupant.seat.kv_floor_bytes}"
            )
    return found


def reserves_lost(card: Card, limits: Mapping[str, int]) -> list[str]:
    """Law 4: every sleeper that keeps its wake reserve could be raised to its floor at once, all of them together."""
    sleepers = [o for o in card.occupants if o.activity is Activity.ASLEEP and o.lent_footprint_bytes is None]
    missing = {o.claim: max(0, o.seat.total_bytes - _promise(o, limits)) for o in sleepers}
    room = card.usable_bytes - sum(_promise(o, limits) for o in card.occupants)
    short = [claim for claim, bytes_missing in missing.items() if bytes_missing]
    if not short or sum(missing.values()) <= room:
        return []
    given_away = sum(missing.values())
    names = ", ".join(short)
    return [f"{card.pod}: {names} could not wake: the floors lack {given_away} bytes, and {max(room, 0)} are left"]


def _promise(occupant: Occupant, limits: Mapping[str, int]) -> int:
    """What one instance was promised: its footprint and limit, or the lent footprint, which its own KV is part of."""
    if occupant.lent_footprint_bytes is not None:
        return occupant.lent_footprint_bytes
    return occupant.seat.footprint_bytes + (limits.get(occupant.claim) or occupant.seat.kv_floor_bytes)

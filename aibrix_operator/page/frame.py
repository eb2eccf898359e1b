"""What a browser is sent: all cards and claims of one look, as JSON. Pure.

Sizes are integers of bytes, what is not known is null, times are RFC 3339 in UTC. Names and texts of others pass
through ``bounded`` here and are set as text, never as markup, in the browser.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aibrix_operator.api.conditions import MESSAGE_LIMIT, Condition, bounded, find_condition, rfc3339
from aibrix_operator.api.modelclaim import ClaimPhase, ConditionType
from aibrix_operator.explain import views
from aibrix_operator.explain.looking import Look
from aibrix_operator.explain.views import CardView
from aibrix_operator.modelclaim.accounts import Account, open_accounts
from aibrix_operator.modelclaim.snapshot import Claim


@dataclass(frozen=True, slots=True)
class _Seen:
    """One claim, and where it sits."""

    claim: Claim
    states: tuple[str, ...]
    """Of its engines, a word or two each."""


def build(look: Look, scope: str) -> dict[str, Any]:
    """The frame. ``scope``: the namespace that is looked at, or words for all of them.

    It carries no time, so that equal looks give equal frames.
    """
    cards: list[CardView] = []
    claims: list[_Seen] = []
    for fleet in look.fleets:
        accounts = open_accounts(fleet)
        cards += [views.view(accounts[name]) for name in sorted(accounts)]
        states = _states(accounts.values())
        claims += [_Seen(c, states.get(c.uid, ())) for c in sorted(fleet.claims, key=lambda c: c.name)]
    return {
        "scope": scope,
        "warnings": [bounded(warning) for warning in look.warnings],
        "cards": [card.to_json() for card in cards],
        "claims": [_claim(seen) for seen in claims],
        "totals": _totals(cards, claims),
    }


def _states(accounts: Iterable[Account]) -> dict[str, tuple[str, ...]]:
    """UID of a claim → what its engines do."""
    found: dict[str, tuple[str, ...]] = {}
    for account in accounts:
        for sitting in account.sittings:
            found[sitting.claim.uid] = (*found.get(sitting.claim.uid, ()), views.state_of(sitting))
    return found


def _totals(cards: Sequence[CardView], claims: Sequence[_Seen]) -> dict[str, Any]:
    known = [card for card in cards if card.usable_bytes is not None]
    states = [state for seen in claims for state in seen.states]
    return {
        "cards": len(cards),
        "unreadableCards": sum(bool(card.hole) for card in cards),
        "usableBytes": sum(card.usable_bytes or 0 for card in known),
        "promisedBytes": sum(card.promised_bytes or 0 for card in known),
        "kvMappedBytes": sum(engine.kv_mapped_bytes for card in cards for engine in card.engines),
        "engines": sum(len(card.engines) for card in cards),
        "serving": states.count("serving"),
        "asleep": states.count("asleep"),
        "claims": len(claims),
        "waiting": sum(_is_waiting(seen) for seen in claims),
        "failed": sum(seen.claim.status.phase is ClaimPhase.FAILED for seen in claims),
    }


def _is_waiting(seen: _Seen) -> bool:
    return not seen.states and not seen.claim.is_deleting


def _claim(seen: _Seen) -> dict[str, Any]:
    claim = seen.claim
    seat, said = claim.seat, _telling(seen)
    return {
        "namespace": claim.namespace,
        "name": claim.name,
        "model": bounded(claim.model),
        "engine": claim.spec.engine,
        "gpus": claim.parallelism,
        "phase": "Deleting" if claim.is_deleting else str(claim.status.phase or "New"),
        "states": list(seen.states),
        "pods": [bounded(instance.pod) for instance in claim.status.instances],
        "desired": claim.status.desired_replicas,
        "ready": claim.status.ready_replicas,
        "footprintBytes": None if seat is None else seat.footprint_bytes,
        "kvFloorBytes": None if seat is None else seat.kv_floor_bytes,
        "createdAt": rfc3339(claim.created_at),
        "reason": "" if said is None else bounded(said.reason),
        "message": "" if said is None else bounded(said.message, MESSAGE_LIMIT),
        "since": "" if said is None else bounded(said.last_transition_time),
        "conditions": [
            {
                "type": bounded(c.type),
                "status": c.status,
                "reason": bounded(c.reason),
                "message": bounded(c.message, MESSAGE_LIMIT),
                "since": bounded(c.last_transition_time),
            }
            for c in claim.status.conditions
        ],
    }


def _telling(seen: _Seen) -> Condition | None:
    """The condition that says most: why it waits while it has no place, and how it serves afterwards."""
    conditions = seen.claim.status.conditions
    scheduled, ready = (find_condition(conditions, t) for t in (ConditionType.SCHEDULED, ConditionType.READY))
    if seen.states or seen.claim.status.phase is ClaimPhase.FAILED:
        return ready or scheduled
    return scheduled or ready

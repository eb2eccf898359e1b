"""Claims whose status another hand has wiped, and whose engine still runs: their record comes back where it is.

An engine carries the UID of its claim, so a claim without a record whose engine a reading shows is adopted there and
not placed anew: the record is what the engine is held to, its route stays, and a sleeper stays asleep. Nothing is
adopted that would overdraw its card.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Instance, InstancePhase
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim.accounts import Account, find_hole
from aibrix_operator.modelclaim.draft import PATIENCE_S, Draft
from aibrix_operator.modelclaim.snapshot import Claim, Pod
from aibrix_operator.runtime_api.wire import EnginePhase, ModelState

_UP = (EnginePhase.ACTIVE, EnginePhase.SLEEPING, EnginePhase.BOOTING, EnginePhase.RESTARTING)


@dataclass(frozen=True, slots=True)
class _Stray:
    account: Account
    engine: ModelState

    @property
    def key(self) -> tuple[bool, str]:
        """1. serving before all others   2. Pod name"""
        return not self.engine.ready, self.account.pod.name


def find_adopted(draft: Draft) -> None:
    """Note whom this pass adopts (``draft.adopted``), and who waits since its engine may be where nothing can be said
    now (``draft.awaited``)."""
    strays: dict[str, list[_Stray]] = {}
    for account in draft.accounts.values():
        for engine in account.strangers:
            if engine.claim_ref is not None and engine.phase in _UP:
                strays.setdefault(engine.claim_ref.uid, []).append(_Stray(account, engine))
    placing = {c.division.newcomer for c in draft.cards.values() if c.division is not None}
    claims = {c.uid: c for c in draft.fleet.claims}
    routed = _routed_to_unread(draft)
    for claim in draft.fleet.claims:
        is_without = not claim.status.instances and not claim.is_writing and claim.name not in placing
        if not is_without or not claim.may_be_placed:
            continue
        assert claim.seat is not None
        mine = sorted(strays.get(claim.uid, ()), key=lambda stray: stray.key)
        instances = [i for stray in mine if (i := _adopted(claim, claim.seat, stray, claims, draft)) is not None]
        if instances:
            draft.adopted[claim.uid] = instances[0]
        elif claim.name in routed or any(_is_unclear(stray, draft) for stray in mine):
            draft.awaited.add(claim.uid)
            if (until_s := routed.get(claim.name, math.inf)) < math.inf:
                draft.wake_at(until_s)


def _is_unclear(stray: _Stray, draft: Draft) -> bool:
    """Whether nothing can be said of its card now; until it would be stopped as nobody's it may yet be adopted."""
    account, engine = stray.account, stray.engine
    assert engine.claim_ref is not None, "a stray names its claim"
    due_s = draft.card_memory(account.pod).orphans.get(engine.claim_ref.uid)
    has_time = due_s is None or draft.now.monotonic_s < due_s
    return account.pod.is_running and has_time and bool(find_hole(account.pod, account.sittings, ()))


def _routed_to_unread(draft: Draft) -> dict[str, float]:
    """Claim name → until when it is waited for, of claims with a route on a Pod whose runtime is about to tell whether
    their engine is there."""
    routed = {}
    for pod in draft.fleet.pods.values():
        until_s = math.inf if pod.busy_since_s is None else pod.busy_since_s + PATIENCE_S
        is_unread = pod.reading.is_pending or pod.busy_since_s is not None
        if pod.is_running and is_unread and draft.now.monotonic_s < until_s:
            for key in pod.annotations:
                routed[key.removeprefix(names.ROUTE_PREFIX)] = until_s
    return routed


def _adopted(claim: Claim, seat: Seat, stray: _Stray, claims: Mapping[str, Claim], draft: Draft) -> Instance | None:
    """The instance as it is to be recorded; None where the card cannot be judged, or has no room for it."""
    account, engine = stray.account, stray.engine
    pod = account.pod
    is_namesakes = any(s.claim.model == claim.model for s in account.sittings)  # runtimes know engines by model name
    if not pod.is_running or not draft.is_free(pod) or is_namesakes:
        return None
    record = _record(seat, stray, claims, draft)
    if record is None:
        return None
    phase = InstancePhase.ACTIVATING
    if engine.phase is EnginePhase.SLEEPING:
        phase = InstancePhase.SLEEPING
    elif engine.phase is EnginePhase.ACTIVE and engine.ready and engine.port:
        is_held = not account.has_cards or 0 <= engine.kv_capacity_bytes <= record
        phase = InstancePhase.ACTIVE if is_held else phase
    return Instance(pod=pod.name, port=engine.port, phase=phase, kv_limit_bytes=record)


def _record(seat: Seat, stray: _Stray, claims: Mapping[str, Claim], draft: Draft) -> int | None:
    """What the engine is held to, or as much of it as there is room for; 0 where nothing is divided; None: no room."""
    account, engine = stray.account, stray.engine
    snapshot = account.pod.reading.snapshot
    assert snapshot is not None, "a stray was read"
    if not account.has_cards:
        return 0
    if find_hole(account.pod, account.sittings, ()):
        return None
    mapped, limit = max(engine.kv_used_bytes, 0), engine.kv_capacity_bytes
    lent = _lent_bytes(engine, account.pod)
    if lent is not None:
        is_held = 0 <= limit <= mapped
        return mapped if lent <= snapshot.usable_bytes - _others_bytes(stray, claims, draft, is_held) else None
    least = max(seat.kv_floor_bytes, mapped)
    wanted, room = max(limit, least), snapshot.usable_bytes - seat.footprint_bytes
    if limit >= 0 and wanted <= room - _others_bytes(stray, claims, draft, is_held=True):
        return wanted
    record = min(wanted, room - _others_bytes(stray, claims, draft, is_held=False))
    return record if record >= least else None


def _others_bytes(stray: _Stray, claims: Mapping[str, Claim], draft: Draft, is_held: bool) -> int:
    """What all others on the card have or may take: footprints, and the larger of record and limit in force.

    ``is_held``: the stray is held to its record already, so that it takes nothing from anybody.
    """
    account, hold = stray.account, draft.card_memory(stray.account.pod).hold
    pod, total = account.pod, 0 if hold is None else hold.seat_bytes
    for sitting in account.sittings:
        if sitting.is_charged:
            # Of a write under way nobody knows yet whether it counts.
            recorded = (i for i in sitting.claim.writing_instances if i.pod == pod.name)
            record = max(i.kv_limit_bytes for i in (sitting.instance, *recorded))
            total += _charge(sitting.claim.seat, sitting.engine, record, pod, is_held)
    for other in account.strangers:
        if other is not stray.engine and not other.is_gone:
            claim = None if other.claim_ref is None else claims.get(other.claim_ref.uid)
            total += _charge(None if claim is None else claim.seat, other, 0, pod, is_held)
    return total


def _charge(seat: Seat | None, engine: ModelState | None, record: int, pod: Pod, is_held: bool) -> int:
    """A sleeper's seat is given away once its record says so: one that is to wake has it back, and one that just fell
    asleep has it until its limit is lowered and recorded. Who is held to its record need not wait for the latter."""
    in_force = 0 if engine is None else engine.kv_capacity_bytes
    footprint, floor = (0, 0) if seat is None else (seat.footprint_bytes, seat.kv_floor_bytes)
    lent = None if engine is None else _lent_bytes(engine, pod)
    if lent is not None and (seat is None or record < floor or (is_held and 0 <= in_force < floor)):
        return lent
    return footprint + max(record, in_force, floor)


def _lent_bytes(engine: ModelState, pod: Pod) -> int | None:
    is_lent = pod.lends_seats and engine.phase is EnginePhase.SLEEPING
    return engine.sleeping_footprint_bytes or None if is_lent else None

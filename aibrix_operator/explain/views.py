"""A Pod's card and its engines as people and programs read them, from one account. Pure; used by explain and top.

Names and texts of others pass through ``bounded``, so that none can write control characters to a terminal.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from aibrix_operator.api.conditions import bounded
from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.explain import picture
from aibrix_operator.modelclaim.accounts import Account, Sitting, is_serving
from aibrix_operator.modelclaim.snapshot import Pod
from aibrix_operator.runtime_api.wire import EnginePhase, ModelState


@dataclass(frozen=True, slots=True)
class EngineView:
    """One engine on a card, or an instance whose engine has not been seen yet."""

    claim: str
    """Empty for an engine that answers to no claim."""
    model: str
    state: str
    """A word or two: ``serving``, ``booting``, ``asleep``, ``being deleted`` …"""
    footprint_bytes: int | None
    """None when the claim declares nothing usable, or there is no claim."""
    kv_floor_bytes: int | None
    kv_record_bytes: int
    """The limit that its claim records; 0 without one."""
    kv_limit_bytes: int | None
    """The limit in force; None when the engine was not read or has no segment."""
    kv_mapped_bytes: int
    requests_running: int | None
    """None when the engine was not read, or cannot be asked."""
    requests_waiting: int | None
    restarts: int
    lent_footprint_bytes: int | None = None
    """What a sleeper is charged instead of its seat, its mapped KV included, where its pool keeps no wake reserve."""

    @property
    def charged_bytes(self) -> int | None:
        """Its part of the card beside KV: its footprint, or what is left of it in a sleeper that lends its seat."""
        if self.lent_footprint_bytes is None:
            return self.footprint_bytes
        return max(self.lent_footprint_bytes - self.kv_mapped_bytes, 0)

    @property
    def kv_bytes(self) -> int:
        """The limit to draw: the one in force, and the record while an engine boots under its allocator's default."""
        if self.kv_limit_bytes is None:
            return self.kv_record_bytes
        return min(self.kv_limit_bytes, self.kv_record_bytes) if self.kv_record_bytes else self.kv_limit_bytes

    @property
    def share(self) -> picture.Share:
        """Its part of the card's bar."""
        return picture.Share(self.claim or self.model, self.charged_bytes or 0, self.kv_bytes, self.kv_mapped_bytes)

    def to_json(self) -> dict[str, Any]:
        """All of it; what is not known is null."""
        return {
            "claim": self.claim,
            "model": self.model,
            "state": self.state,
            "footprintBytes": self.footprint_bytes,
            "kvFloorBytes": self.kv_floor_bytes,
            "kvRecordBytes": self.kv_record_bytes,
            "kvLimitBytes": self.kv_limit_bytes,
            "kvMappedBytes": self.kv_mapped_bytes,
            "requestsRunning": self.requests_running,
            "requestsWaiting": self.requests_waiting,
            "restarts": self.restarts,
            "lentFootprintBytes": self.lent_footprint_bytes,
        }


@dataclass(frozen=True, slots=True)
class CardView:
    """One Pod's card. Figures are None where nothing can be said: no reading, no cards, or a hole in the account."""

    namespace: str
    pod: str
    gpus: int
    is_ready: bool
    engines: tuple[EngineView, ...]
    """By claim name, engines without a claim last."""
    usable_bytes: int | None = None
    promised_bytes: int | None = None
    held_bytes: int | None = None
    room_ever_bytes: int | None = None
    room_now_bytes: int | None = None
    hole: str = ""
    """Why the card cannot be judged; empty when it can."""
    recorded_bytes: int = 0
    """Footprints and limits that statuses record here: the card holds at least that, whoever can read it."""
    has_cards: bool = True

    @property
    def drawn_bytes(self) -> int | None:
        """How large a bar is: as usable, else as what is recorded; None when neither says anything."""
        return self.usable_bytes or self.recorded_bytes or None

    def to_json(self) -> dict[str, Any]:
        """All of it; what is not known is null."""
        return {
            "namespace": self.namespace,
            "pod": self.pod,
            "gpus": self.gpus,
            "ready": self.is_ready,
            "hasCards": self.has_cards,
            "usableBytes": self.usable_bytes,
            "promisedBytes": self.promised_bytes,
            "heldBytes": self.held_bytes,
            "roomEverBytes": self.room_ever_bytes,
            "roomNowBytes": self.room_now_bytes,
            "recordedBytes": self.recorded_bytes,
            "hole": self.hole,
            "engines": [engine.to_json() for engine in self.engines],
        }


def view(account: Account) -> CardView:
    """The account as it is looked at."""
    pod, card = account.pod, account.card
    lent = {} if card is None else {o.claim: o.lent_footprint_bytes for o in card.occupants}
    engines = [
        dataclasses.replace(_of_sitting(s), lent_footprint_bytes=lent.get(s.claim.name)) for s in account.sittings
    ]
    recorded_bytes = sum(_recorded_bytes(s) for s in account.sittings)
    engines += [_of_stranger(m) for m in sorted(account.strangers, key=lambda m: m.model_name)]
    shown = CardView(
        pod.namespace,
        pod.name,
        _gpus(pod),
        pod.is_ready,
        tuple(engines),
        hole=bounded(account.hole),
        recorded_bytes=recorded_bytes,
        has_cards=account.has_cards,
        usable_bytes=_usable_bytes(pod),
    )
    if card is None:
        return shown
    return dataclasses.replace(
        shown,
        usable_bytes=card.usable_bytes,
        promised_bytes=card.promised_bytes,
        held_bytes=card.held_bytes,
        room_ever_bytes=card.room_ever_bytes,
        room_now_bytes=card.room_now_bytes,
    )


def _recorded_bytes(sitting: Sitting) -> int:
    """What its claim's status proves of the card: while it is awake, footprint and limit fit beside all others."""
    instance, seat = sitting.instance, sitting.claim.seat
    is_awake = instance.phase in (InstancePhase.ACTIVE, InstancePhase.ACTIVATING)
    return instance.kv_limit_bytes + (seat.footprint_bytes if seat is not None and is_awake else 0)


def _gpus(pod: Pod) -> int:
    """What its containers ask for, else what its runtime reports."""
    snapshot = pod.reading.snapshot
    if pod.gpu_count or snapshot is None:
        return pod.gpu_count
    return sum(a.hbm_total_bytes > 0 for a in snapshot.accelerators)


def _usable_bytes(pod: Pod) -> int | None:
    """The size of a card whose account has a hole, where it was measured all the same."""
    snapshot = pod.reading.snapshot
    sizes = () if snapshot is None else [a.hbm_usable_bytes for a in snapshot.accelerators if a.hbm_total_bytes > 0]
    return min(sizes) if sizes and min(sizes) > 0 else None


def _of_sitting(sitting: Sitting) -> EngineView:
    claim, engine = sitting.claim, sitting.engine
    is_read = engine is not None and engine.request_metrics_observed
    return EngineView(
        claim=claim.name,
        model=bounded(claim.model),
        state=state_of(sitting),
        footprint_bytes=None if claim.seat is None else claim.seat.footprint_bytes,
        kv_floor_bytes=None if claim.seat is None else claim.seat.kv_floor_bytes,
        kv_record_bytes=sitting.instance.kv_limit_bytes,
        kv_limit_bytes=sitting.limit_in_force if sitting.limit_in_force >= 0 else None,
        kv_mapped_bytes=sitting.mapped_bytes,
        requests_running=engine.requests_running if engine is not None and is_read else None,
        requests_waiting=engine.requests_waiting if engine is not None and is_read else None,
        restarts=0 if engine is None else engine.restart_count,
    )


def _of_stranger(engine: ModelState) -> EngineView:
    is_read = engine.request_metrics_observed
    return EngineView(
        claim="",
        model=bounded(engine.model_name),
        state=_phase_word(engine),
        footprint_bytes=None,
        kv_floor_bytes=None,
        kv_record_bytes=0,
        kv_limit_bytes=engine.kv_capacity_bytes if engine.kv_capacity_bytes >= 0 else None,
        kv_mapped_bytes=max(engine.kv_used_bytes, 0),
        requests_running=engine.requests_running if is_read else None,
        requests_waiting=engine.requests_waiting if is_read else None,
        restarts=engine.restart_count,
    )


_RECORDED_WORDS = {
    InstancePhase.ACTIVATING: "starting",
    InstancePhase.ACTIVE: "serving",
    InstancePhase.SLEEPING: "asleep",
    InstancePhase.FAILED: "failed",
}


def state_of(sitting: Sitting) -> str:
    """What the engine does, in a word or two; of an engine that was not read, what its instance records."""
    engine = sitting.engine
    if sitting.claim.is_deleting:
        return "being deleted"
    if engine is None:
        return _RECORDED_WORDS[sitting.instance.phase]
    if engine.phase is EnginePhase.ACTIVE and engine.ready and not is_serving(sitting):
        return "ready, not routed"
    return _phase_word(engine)


def _phase_word(engine: ModelState) -> str:
    if engine.phase is EnginePhase.ACTIVE:
        return "serving" if engine.ready else "not ready"
    return "asleep" if engine.phase is EnginePhase.SLEEPING else engine.phase.value

"""Play the placement of declared claims on empty cards, with the controller's own placement and division. Pure.

Claims are tried in their order, each once the one before it sits, as they are when they are applied one by one. The
engines that sit serve without requests, so the limits are those of an idle day.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Instance, InstancePhase, LabelSelector, ModelClaimStatus
from aibrix_operator.explain import judging, picture
from aibrix_operator.explain.racks import PlannedPod
from aibrix_operator.ledger import division
from aibrix_operator.ledger.card import Activity, Card, Occupant, Seat
from aibrix_operator.ledger.placement import Placed, Refused
from aibrix_operator.modelclaim.parse import OLDEST
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Pod, Reading
from aibrix_operator.runtime_api import wire

_IP = "planned"
"""Any text: a candidate needs an address, and nobody calls it."""


@dataclass(frozen=True, slots=True)
class PlannedSeat:
    """One claim on a card, and the KV limit that it has there while every engine is idle."""

    claim: str
    footprint_bytes: int
    kv_floor_bytes: int
    kv_limit_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedCard:
    """One Pod's card and who sits there."""

    pod: PlannedPod
    seats: tuple[PlannedSeat, ...]
    """By claim name."""

    @property
    def room_bytes(self) -> int:
        """What can still be promised: the largest further seat."""
        return self.pod.usable_bytes - sum(s.footprint_bytes + s.kv_floor_bytes for s in self.seats)

    @property
    def shares(self) -> list[picture.Share]:
        """Its engines as a bar draws them."""
        return [picture.Share(s.claim, s.footprint_bytes, s.kv_limit_bytes) for s in self.seats]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """One claim that finds no room, with reason and message of the condition that it would get."""

    claim: str
    need_bytes: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PlayedPlan:
    """What it comes to."""

    cards: tuple[PlannedCard, ...]
    """By Pod name."""
    unplaced: tuple[Unplaced, ...]
    """In the order of documents."""

    @property
    def fits(self) -> bool:
        """Whether every claim has a card."""
        return not self.unplaced


def play(claims: Sequence[Claim], pods: Sequence[PlannedPod]) -> PlayedPlan:
    """Place ``claims``, all of them usable, oldest first. Pods without a pool take any claim, whatever it selects."""
    any_pool = not any(p.pool for p in pods)
    seated: dict[str, list[tuple[Claim, Seat]]] = {p.name: [] for p in pods}
    planned = {p.name: p for p in pods}
    fleet = Fleet("", (), {p.name: _warm_pod(p, ()) for p in pods})
    waiting: list[Claim] = []
    for claim in claims:
        asking = _selecting_anything(claim) if any_pool else claim
        seat = _seat(claim)
        answer = judging.judge(fleet, asking, seat).answer
        if isinstance(answer, Placed):
            seated[answer.pod].append((asking, seat))
            fleet = _with_seat(fleet, planned[answer.pod], asking, seated[answer.pod])
        else:
            waiting.append(asking)
    # Waiting claims are tried again and again, so their conditions come to speak of the cards as they are in the end.
    unplaced = tuple(_unplaced(fleet, claim) for claim in waiting)
    return PlayedPlan(tuple(PlannedCard(p, _seats(p, seated[p.name])) for p in pods), unplaced)


def _seat(claim: Claim) -> Seat:
    assert claim.seat is not None, f"{claim.name} declares no seat, and was let through"
    return claim.seat


def _unplaced(fleet: Fleet, claim: Claim) -> Unplaced:
    seat = _seat(claim)
    answer = judging.judge(fleet, claim, seat).answer
    assert isinstance(answer, Refused), f"{claim.name} found no room, and more claims made some"
    return Unplaced(claim.name, seat.total_bytes, answer.reason, answer.message)


def _selecting_anything(claim: Claim) -> Claim:
    return dataclasses.replace(claim, spec=claim.spec.model_copy(update={"pod_selector": LabelSelector()}))


def _with_seat(fleet: Fleet, pod: PlannedPod, claim: Claim, seated: Sequence[tuple[Claim, Seat]]) -> Fleet:
    """The fleet once the claim's engine serves there; no limit matters to placement, so none is recorded yet."""
    instance = Instance(pod=pod.name, phase=InstancePhase.ACTIVE)
    serving = dataclasses.replace(claim, status=ModelClaimStatus(instances=(instance,)))
    pods = {**fleet.pods, pod.name: _warm_pod(pod, seated)}
    return dataclasses.replace(fleet, claims=(*fleet.claims, serving), pods=pods)


def _warm_pod(pod: PlannedPod, seated: Sequence[tuple[Claim, Seat]]) -> Pod:
    """The Pod as its runtime would report it, every engine on it serving without requests."""
    free_bytes = pod.usable_bytes - sum(seat.footprint_bytes for _, seat in seated)
    snapshot = wire.Snapshot(
        observed_at=OLDEST,
        accelerators=tuple(
            wire.Accelerator(
                id=f"{pod.name}-{number}",
                hbm_total_bytes=pod.usable_bytes,
                hbm_free_bytes=free_bytes,
                hbm_usable_bytes=pod.usable_bytes,
            )
            for number in range(pod.gpus)
        ),
        models=tuple(_engine(claim) for claim, _ in seated),
        cached_artifacts=tuple(sorted({claim.spec.artifact_url for claim, _ in seated})),
    )
    labels = {names.ENABLED_LABEL: "true", names.POOL_LABEL: pod.pool}
    return Pod("", pod.name, pod.name, _IP, labels, True, True, pod.gpus, reading=Reading(1, snapshot))


def _engine(claim: Claim) -> wire.ModelState:
    return wire.ModelState(
        model_name=claim.model,
        artifact_url=claim.spec.artifact_url,
        claim_ref=wire.ClaimRef(namespace="", name=claim.name, uid=claim.uid),
        phase=wire.EnginePhase.ACTIVE,
        ready=True,
        kv_used_bytes=0,
        kv_capacity_bytes=0,
        request_metrics_observed=True,
    )


def _seats(pod: PlannedPod, seated: Sequence[tuple[Claim, Seat]]) -> tuple[PlannedSeat, ...]:
    card = Card(
        pod.name, pod.usable_bytes, tuple(Occupant(c.name, seat, activity=Activity.SERVING) for c, seat in seated)
    )
    limits = division.divide(card)
    return tuple(
        PlannedSeat(o.claim, o.seat.footprint_bytes, o.seat.kv_floor_bytes, limits[o.claim]) for o in card.occupants
    )


def to_json(plan: PlayedPlan) -> dict[str, Any]:
    """The plan for programs; bytes as integers."""
    return {
        "fits": plan.fits,
        "cards": [
            {
                "pod": card.pod.name,
                "pool": card.pod.pool,
                "kind": card.pod.kind,
                "gpus": card.pod.gpus,
                "usableBytes": card.pod.usable_bytes,
                "roomBytes": card.room_bytes,
                "claims": [
                    {
                        "name": seat.claim,
                        "footprintBytes": seat.footprint_bytes,
                        "kvFloorBytes": seat.kv_floor_bytes,
                        "kvLimitBytes": seat.kv_limit_bytes,
                    }
                    for seat in card.seats
                ],
            }
            for card in plan.cards
        ],
        "unplaced": [
            {"name": u.claim, "needBytes": u.need_bytes, "reason": u.reason, "message": u.message}
            for u in plan.unplaced
        ],
    }

"""Short ways to say claims, Pods, engines and readings: a row of a test shows only what matters to it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Instance, InstancePhase, ModelClaimStatus
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim.accounts import Sitting, open_accounts
from aibrix_operator.modelclaim.draft import Draft
from aibrix_operator.modelclaim.parse import parse_claim
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Moment, Pod, Reading
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.wire import EnginePhase

GIB = 1 << 30
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEAT = Seat(300, 100)
POOL_LABELS = {names.POOL_LABEL: "pool-a", names.ENABLED_LABEL: "true"}


def moment(seconds=0.0):
    return Moment(NOW + timedelta(seconds=seconds), seconds)


def make_claim(name="a", *instances, seat=SEAT, conditions=(), **changes) -> Claim:
    """A claim with our finalizer; ``seat`` None leaves ``perGPU`` out."""
    spec = {"podSelector": {"matchLabels": {names.POOL_LABEL: "pool-a"}}, "artifactURL": f"huggingface://org/{name}"}
    if seat is not None:
        spec["perGPU"] = {"maximumFootprint": seat.footprint_bytes, "kvFloor": seat.kv_floor_bytes}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "resourceVersion": "1", "generation": 1}
    metadata["finalizers"] = [names.CLAIM_FINALIZER]
    claim = parse_claim({"metadata": metadata, "spec": spec})
    status = ModelClaimStatus(instances=instances, conditions=conditions)
    return dataclasses.replace(claim, status=status, **changes)


def make_instance(phase=InstancePhase.ACTIVE, *, pod="warm-0", port=20_000, limit=200, reason="") -> Instance:
    return Instance(pod=pod, port=port, phase=phase, kv_limit_bytes=limit, reason=reason)


def make_engine(name="a", phase=EnginePhase.ACTIVE, *, limit=200, mapped=0, port=20_000, claim=True, **changes):
    """An engine as its runtime tells of it. ``claim`` False: one that a user started by hand."""
    is_up = phase is EnginePhase.ACTIVE
    fields = {
        "model_name": name,
        "claim_ref": wire.ClaimRef(namespace="default", name=name, uid=f"uid-of-{name}") if claim else None,
        "phase": phase,
        "port": port,
        "ready": is_up,
        "alive": phase not in (EnginePhase.FAILED, EnginePhase.RESTARTING),
        "kv_capacity_bytes": limit,
        "kv_used_bytes": mapped if limit >= 0 else -1,
        "request_metrics_observed": is_up,
    }
    return wire.ModelState(**{**fields, **changes})


def make_snapshot(*engines, usable=(1000,), total=None):
    sizes = zip(usable, usable if total is None else total, strict=True)
    cards = [wire.Accelerator(id=f"GPU-{n}", hbm_total_bytes=t, hbm_usable_bytes=u) for n, (u, t) in enumerate(sizes)]
    return wire.Snapshot(observed_at=NOW, accelerators=tuple(cards), models=engines)


def make_pod(name="warm-0", snapshot=None, *, error="", gpus=1, annotations=None, **changes) -> Pod:
    """A warm Pod that runs. Without a snapshot and an error its runtime was not read yet."""
    reading = Reading(1, snapshot, error) if snapshot is not None or error else Reading()
    pod = Pod("default", name, f"uid-of-{name}", "10.0.0.1", POOL_LABELS, True, True, gpus, annotations or {}, reading)
    return dataclasses.replace(pod, **changes)


def make_fleet(*objects) -> Fleet:
    """Claims and Pods of one namespace."""
    claims = tuple(sorted((o for o in objects if isinstance(o, Claim)), key=lambda c: c.age_key))
    return Fleet("default", claims, {o.name: o for o in objects if isinstance(o, Pod)})


def make_sitting(instance=None, engine=None, name="a", **claim) -> Sitting:
    """One instance beside its engine."""
    instance = make_instance() if instance is None else instance
    return Sitting(make_claim(name, instance, **claim), instance, engine)


def make_draft(*objects, now_s=0.0, claims=None, cards=None, **changes) -> Draft:
    """A pass over the objects that has decided nothing yet. ``claims`` and ``cards`` are memories, by name."""
    fleet = make_fleet(*objects)
    of_claims, of_cards = ({f"uid-of-{name}": memory for name, memory in (of or {}).items()} for of in (claims, cards))
    granted = {uid for uid, memory in of_claims.items() if memory.wake_request and memory.wake_request.is_granted}
    holds = {uid: memory.hold.seat_bytes for uid, memory in of_cards.items() if memory.hold}
    accounts = open_accounts(fleet, granted, holds)
    return Draft(fleet, moment(now_s), accounts, of_claims, of_cards, passes=1, **changes)

"""What a cluster at rest must look like, counted anew from claims and readings with nothing of the ledger's code.

For clusters in which no request runs and no KV is mapped: every awake engine then deserves an equal share.
"""

from __future__ import annotations

from dataclasses import dataclass

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase, Instance, InstancePhase, Reason
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Pod
from aibrix_operator.runtime_api.wire import EnginePhase, ModelState

SMALLEST_MOVE_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class _Seated:
    claim: Claim
    instance: Instance
    engine: ModelState | None


@dataclass(frozen=True, slots=True)
class _Picture:
    """One card that can be judged."""

    pod: Pod
    usable_bytes: int
    room_bytes: int
    awake: tuple[_Seated, ...]

    @property
    def tolerated_bytes(self) -> int:
        """A limit that is off by less is not worth a write."""
        return max(SMALLEST_MOVE_BYTES, self.usable_bytes // 100)


def unsettled_figures(fleet: Fleet) -> list[str]:
    """What is not as it should be, one sentence each."""
    found = []
    for pod in fleet.pods.values():
        seated = [
            _Seated(c, i, _engine_of(c, pod)) for c in fleet.claims for i in c.status.instances if i.pod == pod.name
        ]
        found += [sentence for one in seated for sentence in (*_not_served(one, pod), *_given_up(one, pod))]
        picture = _picture_of(pod, seated)
        if picture is not None:
            found += _undivided(picture) if picture.room_bytes >= 0 else []
            found += _turned_away(picture, fleet)
            found += [sentence for one in seated for sentence in _not_called_off(one, picture)]
    return found


def _picture_of(pod: Pod, seated: list[_Seated]) -> _Picture | None:
    snapshot = pod.reading.snapshot
    if snapshot is None or not snapshot.accelerators:
        return None
    usable = min(a.hbm_usable_bytes for a in snapshot.accelerators)
    uids = {one.claim.uid for one in seated}
    has_stranger = any(
        e.alive or e.phase is not EnginePhase.FAILED
        for e in snapshot.models
        if e.claim_ref is None or e.claim_ref.uid not in uids
    )
    if usable <= 0 or has_stranger or any(one.claim.seat is None for one in seated):
        return None
    awake = tuple(o for o in seated if o.instance.phase is InstancePhase.ACTIVE and o.engine is not None)
    return _Picture(pod, usable, usable - sum(_charge(one, pod) for one in seated), awake)


def _charge(one: _Seated, pod: Pod) -> int:
    """What one instance keeps from others while nothing is mapped."""
    engine, seat = one.engine, one.claim.seat
    assert seat is not None
    if one.instance.phase is InstancePhase.FAILED and (engine is None or not engine.alive):
        return 0
    is_asked = names.wake_annotation(one.claim.name) in pod.annotations
    if engine is not None and engine.phase is EnginePhase.SLEEPING and pod.lends_seats and not is_asked:
        return engine.sleeping_footprint_bytes or seat.footprint_bytes + seat.kv_floor_bytes
    return seat.footprint_bytes + seat.kv_floor_bytes


def _not_served(one: _Seated, pod: Pod) -> list[str]:
    """An active claim has its engine there, ready on its port."""
    if one.claim.status.phase is not ClaimPhase.ACTIVE:
        return []
    engine = one.engine
    if engine is None or not engine.ready or engine.port != one.instance.port:
        what = "no engine" if engine is None else f"an engine that is {engine.phase} on port {engine.port}"
        return [f"{one.claim.name} is active on {pod.name}:{one.instance.port}, and there is {what}"]
    return []


def _given_up(one: _Seated, pod: Pod) -> list[str]:
    """Nobody is failed whose engine runs, whoever wrote that it failed."""
    engine = one.engine
    is_up = engine is not None and engine.ready and engine.phase is EnginePhase.ACTIVE
    if one.instance.phase is not InstancePhase.FAILED or not is_up or one.claim.is_deleting:
        return []
    return [f"{one.claim.name} is failed on {pod.name}, and its engine runs"]


def _undivided(picture: _Picture) -> list[str]:
    """Records are in force, nobody has less than half of an even share, and all that can be dealt is dealt."""
    found, awake, tolerated = [], picture.awake, picture.tolerated_bytes
    limits = {o.claim.name: (0 if o.engine is None else o.engine.kv_capacity_bytes) for o in awake}
    if not awake or any(limit < 0 for limit in limits.values()):
        return []
    for one in awake:
        seat, limit, record = one.claim.seat, limits[one.claim.name], one.instance.kv_limit_bytes
        assert seat is not None
        share = seat.kv_floor_bytes + picture.room_bytes // len(awake)
        where = f"{one.claim.name} on {picture.pod.name}"
        if record and abs(limit - record) >= tolerated:
            found.append(f"{where} is held to {limit}, and its record is {record}")
        if 2 * limit < share and share - limit >= tolerated:
            found.append(f"{where} is held to {limit}, and an even share is {share}")
    spare = sum(o.claim.seat.kv_floor_bytes for o in awake if o.claim.seat is not None) + picture.room_bytes
    if spare - sum(limits.values()) >= tolerated * len(awake):
        found.append(f"{picture.pod.name} has {spare} bytes of KV to deal, and {sum(limits.values())} are dealt")
    return found


def _not_called_off(one: _Seated, picture: _Picture) -> list[str]:
    """Nobody moves from a card that can take it back from sleep."""
    is_moving = one.instance.phase is InstancePhase.FAILED and one.instance.reason == Reason.NO_ROOM_TO_WAKE
    is_asleep = one.engine is not None and one.engine.phase is EnginePhase.SLEEPING
    seat = one.claim.seat
    if not is_moving or not is_asleep or seat is None or one.claim.is_deleting:
        return []
    room_bytes = picture.room_bytes + _charge(one, picture.pod)
    if room_bytes < seat.footprint_bytes + seat.kv_floor_bytes:
        return []
    return [f"{one.claim.name} is moving from {picture.pod.name}, whose card can take it back: {room_bytes} bytes"]


def _turned_away(picture: _Picture, fleet: Fleet) -> list[str]:
    """No claim waits for what there is."""
    pod = picture.pod
    return [
        f"{claim.name} needs {claim.seat.total_bytes} bytes and waits, and {pod.name} has {picture.room_bytes}"
        for claim in fleet.claims
        if not claim.status.instances
        and not claim.is_deleting
        and not claim.engine_error
        and claim.seat is not None
        and claim.seat.footprint_bytes + claim.seat.kv_floor_bytes <= picture.room_bytes
        and pod.is_running
        and pod.labels.get(names.ENABLED_LABEL) == "true"
        and claim.spec.pod_selector.matches(pod.labels)
        and (claim.spec.engine != "vllm" or pod.gpu_count in (0, claim.parallelism))
    ]


def _engine_of(claim: Claim, pod: Pod) -> ModelState | None:
    models = () if pod.reading.snapshot is None else pod.reading.snapshot.models
    return next((e for e in models if e.claim_ref is not None and e.claim_ref.uid == claim.uid), None)

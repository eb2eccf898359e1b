"""The account of every Pod: who sits on its card, what each is charged, and whether the card can be judged at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Instance, InstancePhase
from aibrix_operator.ledger.card import Activity, Card, Occupant
from aibrix_operator.modelclaim.memory import Composition
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Pod
from aibrix_operator.runtime_api.wire import EnginePhase, ModelState, Snapshot


@dataclass(frozen=True, slots=True)
class Sitting:
    """One instance on one Pod, beside the engine that serves it."""

    claim: Claim
    instance: Instance
    engine: ModelState | None
    """None when the reading lists none, or there is no reading."""
    is_recorded: bool = True
    """False for an instance that only a status write under way would record."""

    @property
    def is_charged(self) -> bool:
        """A failed instance whose engine is gone costs nothing; one that is being restarted will hold memory again."""
        is_gone = self.engine is None or self.engine.is_gone
        return not (self.instance.phase is InstancePhase.FAILED and is_gone)

    @property
    def is_asleep(self) -> bool:
        return self.engine is not None and self.engine.phase is EnginePhase.SLEEPING

    @property
    def limit_in_force(self) -> int:
        """The KV limit that the engine's segment shows; -1 without a segment."""
        return -1 if self.engine is None else self.engine.kv_capacity_bytes

    @property
    def recorded_bytes_at_most(self) -> int:
        """Its record, or a higher one in a write that may have been done."""
        unsure = [i.kv_limit_bytes for i in self.claim.unsure_instances if i.pod == self.instance.pod]
        return max([self.instance.kv_limit_bytes, *unsure])

    @property
    def mapped_bytes(self) -> int:
        """KV that the engine maps; 0 without a segment."""
        return 0 if self.engine is None else max(self.engine.kv_used_bytes, 0)


@dataclass(frozen=True, slots=True)
class Account:
    """One Pod's account. ``card`` is None when the Pod has no cards, or (``hole`` says why) they cannot be judged."""

    pod: Pod
    sittings: tuple[Sitting, ...]
    """By claim name."""
    has_cards: bool
    card: Card | None = None
    """What is promised here: a sleeper that was asked for, or whose pool lends no more, has its full seat back."""
    plan_card: Card | None = None
    """What limits are planned for: as ``card``, but a sleeper for whose seat there is no room yet stays at what it
    holds."""
    hole: str = ""
    strangers: tuple[ModelState, ...] = ()
    """Engines that answer to no instance here."""

    @property
    def beside(self) -> Card | None:
        """What is judged against who is awake without its seat, or moves for want of it: ``card`` in a pool that lends,
        where each full seat of a sleeper is asked for. Elsewhere ``plan_card``: a seat that was given away and that
        there is no room for takes nobody else's."""
        return self.card if self.pod.lends_seats else self.plan_card

    @property
    def composition(self) -> Composition:
        """What the card's limits depend on besides load; only asked of cards that can be judged."""
        uids = {s.claim.name: s.claim.uid for s in self.sittings}
        occupants = () if self.plan_card is None else self.plan_card.occupants
        return frozenset(
            (uids[o.claim], o.seat, o.activity is Activity.ASLEEP, o.lent_footprint_bytes) for o in occupants
        )


def open_accounts(
    fleet: Fleet, granted: Set[str] = frozenset(), holds: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Account]:
    """Pod name → account, for every Pod of the fleet. Instances on Pods that are not there have no account.

    ``granted`` are the UIDs of claims whose wake is about to be carried out, so that their seat is planned for;
    ``holds`` are the bytes kept on a Pod's card (by Pod UID) for a claim that room is made for.
    """
    seated: dict[str, list[tuple[Claim, Instance, bool]]] = defaultdict(list)
    for claim in fleet.claims:
        recorded = {i.pod for i in claim.status.instances}
        for instance in claim.status.instances:
            seated[instance.pod].append((claim, instance, True))
        for instance in claim.writing_instances:
            if instance.pod not in recorded:
                seated[instance.pod].append((claim, instance, False))
    return {name: _open(pod, seated.get(name, ()), granted, holds.get(pod.uid, 0)) for name, pod in fleet.pods.items()}


def _open(pod: Pod, seated: Sequence[tuple[Claim, Instance, bool]], granted: Set[str], held: int) -> Account:
    snapshot = pod.reading.snapshot
    engines = () if snapshot is None else snapshot.models
    sittings, strangers = _match(seated, engines)
    has_cards = _has_cards(pod, snapshot, sittings)
    if not has_cards and snapshot is not None:
        return Account(pod, sittings, has_cards=False, strangers=strangers)
    hole = find_hole(pod, sittings, strangers)
    if hole or snapshot is None:
        return Account(pod, sittings, has_cards, hole=hole, strangers=strangers)
    usable = snapshot.usable_bytes
    charged = [s for s in sittings if s.is_charged]
    lenders = {s.claim.uid for s in charged if lent_bytes(s, pod) is not None}
    asked = {uid for uid in lenders if any(s.claim.uid == uid and is_asked_for(s, pod) for s in charged)}
    owed = asked if pod.lends_seats else lenders
    card = Card(pod.name, usable, tuple(occupant(s, pod, s.claim.uid in lenders - owed) for s in charged), held)
    plan_card = card
    if owed - granted:
        lent = lenders - granted
        plan_card = Card(pod.name, usable, tuple(occupant(s, pod, s.claim.uid in lent) for s in charged), held)
        if not (pod.lends_seats or asked - granted):  # room that comes is first of all for who is asked for
            plan_card = _with_seats_back(plan_card, pod, [s for s in charged if s.claim.uid in lent])
    return Account(pod, sittings, has_cards, card, plan_card, strangers=strangers)


def _with_seats_back(card: Card, pod: Pod, lenders: Sequence[Sitting]) -> Card:
    """The card of a pool that lends no more, with the seats given back that there is room for, oldest claim first."""
    for sitting in sorted(lenders, key=lambda s: s.claim.age_key):
        with_seat = card.with_occupant(occupant(sitting, pod, False))
        if min(with_seat.room_ever_bytes, with_seat.room_now_bytes) >= 0:
            card = with_seat
    return card


def lent_bytes(sitting: Sitting, pod: Pod) -> int | None:
    """What a sleeper without wake reserve was measured to hold; None for all others, and where it is not known.

    In a pool that lends no more, a record of 0 tells that its seat was given away before.
    """
    engine = sitting.engine
    if engine is None or engine.phase is not EnginePhase.SLEEPING:
        return None
    if not pod.lends_seats and sitting.instance.kv_limit_bytes:
        return None
    return engine.sleeping_footprint_bytes or None


def is_asked_for(sitting: Sitting, pod: Pod) -> bool:
    """Whether the Pod carries a request to wake this claim's engine."""
    return names.wake_annotation(sitting.claim.name) in pod.annotations


def _match(
    seated: Sequence[tuple[Claim, Instance, bool]], engines: Sequence[ModelState]
) -> tuple[tuple[Sitting, ...], tuple[ModelState, ...]]:
    """Join instances with engines: by claim UID where the engine carries one, else by served model name."""
    by_uid = {e.claim_ref.uid: e for e in engines if e.claim_ref is not None}
    by_model = {e.model_name: e for e in engines if e.claim_ref is None}
    sittings, matched = [], set()
    for claim, instance, is_recorded in seated:
        engine = by_uid.get(claim.uid) or by_model.get(claim.model)
        if engine is not None:
            matched.add(id(engine))
        sittings.append(Sitting(claim, instance, engine, is_recorded))
    sittings.sort(key=lambda s: s.claim.name)
    return tuple(sittings), tuple(e for e in engines if id(e) not in matched)


def _has_cards(pod: Pod, snapshot: Snapshot | None, sittings: Sequence[Sitting]) -> bool:
    """Whether anything says that this Pod has cards; one failed reading does not make it GPU-less."""
    if pod.gpu_count > 0 or any(s.instance.kv_limit_bytes > 0 for s in sittings):
        return True
    if snapshot is None:
        return False
    return any(a.hbm_total_bytes > 0 for a in snapshot.accelerators) or any(
        m.kv_capacity_bytes >= 0 for m in snapshot.models
    )


def find_hole(pod: Pod, sittings: Sequence[Sitting], strangers: Sequence[ModelState]) -> str:
    """The first reason why the card cannot be judged; empty when it can. A reading not there yet is no reason."""
    snapshot = pod.reading.snapshot
    if snapshot is None:
        return "its runtime did not answer" if pod.reading.error else ""
    cards = [a for a in snapshot.accelerators if a.hbm_total_bytes > 0]
    if not cards or len(cards) < pod.gpu_count or any(a.hbm_usable_bytes < 0 for a in snapshot.accelerators):
        return "its cards could not be measured"
    if any(a.hbm_usable_bytes == 0 for a in cards):
        return "its runtime does not report what its cards can hold, as one older than the controller does not"
    for sitting in sittings:
        if sitting.claim.seat is None:
            return f"{sitting.claim.name} runs there, and {sitting.claim.seat_error}"
    for engine in strangers:
        if engine.phase is EnginePhase.STOPPING:
            return f"the engine that served {engine.model_name} there is still exiting"
        if not engine.is_gone:
            return f"the engine serving {engine.model_name} there answers to no claim"
    return ""


def occupant(sitting: Sitting, pod: Pod, is_lent: bool) -> Occupant:
    """The charge of a sitting that is charged, on a card without holes."""
    seat = sitting.claim.seat
    assert seat is not None, "a claim without seat makes its card unjudgeable"
    engine = sitting.engine
    activity = Activity.STARTING
    requests: int | None = 0
    if engine is not None and engine.phase is EnginePhase.SLEEPING:
        activity = Activity.ASLEEP
    elif engine is not None and is_serving(sitting):
        activity = Activity.SERVING
        is_read = engine.request_metrics_observed
        requests = engine.requests_running + engine.requests_waiting if is_read else None
    lent = lent_bytes(sitting, pod) if is_lent else None
    return Occupant(sitting.claim.name, seat, sitting.mapped_bytes, activity, requests, lent)


def is_serving(sitting: Sitting) -> bool:
    """Whether requests can reach the engine: active and ready by the runtime's word, and ``Active`` by ours."""
    engine = sitting.engine
    return (
        engine is not None
        and engine.phase is EnginePhase.ACTIVE
        and engine.ready
        and sitting.instance.phase is InstancePhase.ACTIVE
    )


def by_claim(account: Account) -> Mapping[str, Sitting]:
    """Claim name → sitting."""
    return {s.claim.name: s for s in account.sittings}


LONGEST_BOOT = timedelta(minutes=5)
"""An engine that boots for longer is looked at no more often than everything else."""


def is_booting(engine: ModelState, snapshot: Snapshot) -> bool:
    """Whether the engine is about to become ready (or gone), by the runtime's own clock: undated boots, and boots dated
    in the future, are not waited for."""
    if engine.last_transition is None or not engine.alive or engine.ready:
        return False
    if engine.phase in (EnginePhase.RESTARTING, EnginePhase.SLEEPING, EnginePhase.FAILED):
        return False
    if engine.phase is EnginePhase.STOPPING and engine.last_error:
        return False
    return timedelta(0) <= snapshot.observed_at - engine.last_transition < LONGEST_BOOT

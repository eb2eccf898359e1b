"""What the checkers of a simulation know: what the API server holds, what runtimes have answered, and how late the
controller may be to hear of either.

Every question that has a moment's grace is answered here: what was so a moment ago excuses what is done now.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from aibrix_operator.api.modelclaim import Instance, InstancePhase
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, REPLICA_SETS, Key, Object
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim.parse import UnreadableClaim, parse_claim
from aibrix_operator.modelclaim.snapshot import Claim
from aibrix_operator.runtime_api import wire
from aibrix_operator.sim.store import EPOCH, Store, now_s, wall

UNDER_WAY_S = 0.5
"""What was decided may be carried out so much later; what was true at any time since then excuses it."""
AT_ONCE_S = 1e-3
"""What watches tell so soon after a change is told at once: changes of one moment are told one after the other."""


@dataclass(frozen=True, slots=True)
class Told:
    """One answer of a runtime to the controller: a snapshot, or None when it did not give one."""

    at_s: float
    snapshot: wire.Snapshot | None

    def engine_of(self, claim: Claim) -> wire.ModelState | None:
        """The claim's engine in this answer."""
        for engine in () if self.snapshot is None else self.snapshot.models:
            if engine.claim_ref is not None and engine.claim_ref.uid == claim.uid:
                return engine
        return None

    @property
    def usable_bytes(self) -> int:
        """What the smallest card can hold; -1 where that is not known."""
        if self.snapshot is None or not self.snapshot.accelerators:
            return -1
        return min(a.hbm_usable_bytes for a in self.snapshot.accelerators)


@dataclass(slots=True)
class Missed:
    """A claim whose end a process of the operator did not hear of, because its watches were broken."""

    key: Key
    since_s: float
    """It has heard of no change of the claim since then."""
    until_s: float = float("inf")
    """When it was told of the end after all."""


@dataclass(slots=True)
class Known:
    """Watches one store and the runtimes behind its Pods, and judges nothing."""

    store: Store
    writing: Callable[[], Mapping[str, tuple[Instance, ...]]]
    """Claim UID → instances that a status write under way would record."""
    clocks_are_off: Callable[[], bool] = lambda: False
    """Whether an operator's wall clock is."""
    missed: Callable[[], Mapping[str, Missed]] = dict
    """Claim UID → of the claims whose end the leader did not hear of."""
    told: dict[str, list[Told]] = field(default_factory=lambda: defaultdict(list))
    """Pod address → what its runtime answered of late, oldest first."""
    claims_before: dict[str, list[tuple[float, Claim]]] = field(default_factory=lambda: defaultdict(list))
    """Claim UID → its versions of late."""
    by_hand: set[str] = field(default_factory=set)
    """The versions of claims that another hand made."""
    gone_s: dict[str, float] = field(default_factory=dict)
    """UID of a claim that is gone → since when."""
    moved_s: dict[str, float] = field(default_factory=dict)
    """Pod address → when it became another Pod's; minus infinity for its first."""
    annotated_s: dict[str, float] = field(default_factory=dict)
    """Pod UID → when somebody else last changed its annotations."""
    on_their_way: list[tuple[float, float]] = field(default_factory=list)
    """(when it was made, when watches tell of it) of the changes that are told late, oldest first."""
    deaf_since: dict[str, float] = field(default_factory=dict)
    """Operator whose watches bring nothing → since when."""
    deaf_before: tuple[float, float] = (0.0, float("-inf"))
    """The last time that one did not hear: from, to."""
    parsed: dict[str, Claim | None] = field(default_factory=dict)
    """By resourceVersion, which no two objects of a store share."""

    def answered(self, ip: str, snapshot: wire.Snapshot | None) -> None:
        """A runtime answered the controller."""
        told = self.told[ip]
        told.append(Told(now_s(), snapshot))
        del told[:-64]

    def _has_just_moved(self, ip: str) -> bool:
        """Whether the address is another Pod's so lately that the controller need not know: it called the last one."""
        return now_s() - self.moved_s.get(ip, float("-inf")) <= self._late_s

    def _is_told_late(self, pod: Object) -> bool:
        """Whether the Pod's annotations changed so lately that the controller need not know."""
        return now_s() - self.annotated_s.get(pod["metadata"]["uid"], float("-inf")) <= self._late_s

    def _promised(self, pod: str, ip: str, *, is_adopting: bool = False) -> int:
        """Footprints and limits promised on the Pod: of each claim the larger of its record and a write under way.
        What another hand has recorded, and the controller need not know of, is promised by nobody.

        An engine that is adopted within the limit that it has takes nothing from anybody. Beside it a sleeper counts as
        what it holds once its limit is seen to have fallen, also while its record has yet to follow.
        """
        total = 0
        for claim in self._claims():
            writing = [i for i in self.writing().get(claim.uid, ()) if i.pod == pod]
            total += min(
                self._charge(version, [i for i in version.status.instances if i.pod == pod] + writing, ip, is_adopting)
                for version in self._as_known(claim)
            )
        return total

    def _charge(self, claim: Claim, instances: list[Instance], ip: str, is_adopting: bool) -> int:
        """What one claim with these instances on a Pod has of its card."""
        engines = [t.engine_of(claim) for t in self._recent(ip)]
        is_gone = any(e is None or not e.alive for e in engines)
        charged = [i for i in instances if not (i.phase is InstancePhase.FAILED and is_gone)]
        asleep = [e.sleeping_footprint_bytes for e in engines if e is not None and e.sleeping_footprint_bytes]
        floor = min((s.kv_floor_bytes for s in self._seats(claim)), default=0)
        has_fallen = is_adopting and any(e is not None and 0 <= e.kv_capacity_bytes < floor for e in engines)
        is_below = has_fallen or max((i.kv_limit_bytes for i in charged), default=0) < floor
        # A record of 0 tells that the seat was given away, also where the pool has ceased to do so.
        is_lent = is_below and (any(self._lends(i.pod) for i in charged) or not any(i.kv_limit_bytes for i in charged))
        if charged and asleep and is_lent:
            return min(asleep)
        if not charged or claim.seat is None:
            return 0
        limit = max(i.kv_limit_bytes for i in charged)
        return min(s.footprint_bytes + (limit or s.kv_floor_bytes) for s in self._seats(claim))

    def _lends(self, pod: str) -> bool:
        """Whether the Pod's pool gives sleepers' seats away."""
        body = next((p for p in self._pods() if p["metadata"]["name"] == pod), None)
        owners = {} if body is None else {o["uid"] for o in body["metadata"].get("ownerReferences", ())}
        for (plural, _, _), replica_set in self.store.objects.items():
            if plural == REPLICA_SETS.plural and replica_set["metadata"]["uid"] in owners:
                above = {o["uid"] for o in replica_set["metadata"].get("ownerReferences", ())}
                return any(
                    'noWakeReserveWhileAsleep":true' in str(d["metadata"].get("annotations"))
                    for (kind, _, _), d in self.store.objects.items()
                    if kind == DEPLOYMENTS.plural and d["metadata"]["uid"] in above
                )
        return False

    def _is_lent(self, claim: Claim, pod: str) -> bool:
        """Whether the claim's engine on the Pod was just seen asleep in a pool that gives its seat away."""
        ip = next((address_of(p) for p in self._pods() if p["metadata"]["name"] == pod), "")
        engines = [t.engine_of(claim) for t in self._recent(ip)]
        return self._lends(pod) and any(e is not None and e.phase is wire.EnginePhase.SLEEPING for e in engines)

    def _is_news(self, claim: Claim) -> bool:
        """Whether the deletion of the claim is so fresh that its watch need not have told yet."""
        assert claim.deleting_since is not None
        return (wall() - claim.deleting_since).total_seconds() <= 1.0 + self._late_s

    @property
    def _late_s(self) -> float:
        """How long ago something may have changed without the controller's knowledge: a write that arrives late was
        decided before it was sent."""
        sent_s = now_s() - self.store.late_by_s
        first = bisect.bisect_left(self.on_their_way, sent_s - UNDER_WAY_S, key=_told_s)
        made_s = self.on_their_way[first][0] if first < len(self.on_their_way) else sent_s
        deaf_from_s, deaf_to_s = self.deaf_before
        since_s = min([sent_s, made_s, *self.deaf_since.values()])
        if sent_s <= deaf_to_s + UNDER_WAY_S:
            since_s = min(since_s, deaf_from_s)
        return UNDER_WAY_S + now_s() - since_s

    def went_deaf(self, operator: str) -> None:
        """The operator hears of no change from now on, nor of those that were on their way."""
        self.deaf_since[operator] = now_s() - self.store.watch_delay_s

    def hears_again(self, operator: str) -> None:
        """It has listed everything anew."""
        self.deaf_before = self.deaf_since.pop(operator), now_s()

    def _as_known(self, claim: Claim) -> list[Claim]:
        """The claim as it is, and as it was before another hand changed it so lately that the controller need not know.
        Whoever writes to a version knows it."""
        known, since_s = [claim], now_s() - self._late_s
        for (_, before), (at_s, after) in reversed(list(itertools.pairwise(self.claims_before[claim.uid]))):
            if at_s < since_s or after.resource_version not in self.by_hand:
                break
            known.append(before)
        return known

    def _seats(self, claim: Claim) -> list[Seat]:
        """What the claim declares, and what it declared a moment ago."""
        versions = self.claims_before[claim.uid]
        seats = [] if claim.seat is None else [claim.seat]
        for (_, before), (until_s, _) in itertools.pairwise(versions):
            if until_s >= now_s() - self._late_s and before.seat is not None:
                seats.append(before.seat)
        return seats

    def _was_recorded(self, model: str, pod: str) -> bool:
        """Whether a claim of that model was recorded on the Pod a moment ago: another hand may have changed that."""
        return any(c.model == model and c.instance_on(pod) for c in self._versions_of_late())

    def _records_of_late(self, uid: str, pod: str) -> set[int]:
        """Other records of the claim on the Pod that the controller may go by: another hand may have changed it since.
        None at all is not one of them, since it would allow every limit.
        """
        versions = (c.instance_on(pod) for c in self._versions_of_late() if c.uid == uid)
        return {i.kv_limit_bytes for i in versions if i is not None and i.kv_limit_bytes}

    def _versions_of_late(self) -> Iterator[Claim]:
        """All versions of all claims that the controller may go by, also of claims that are gone."""
        missed = self.missed()
        for uid, versions in self.claims_before.items():
            since_s = now_s() - self._late_s
            if self._is_missed(uid):
                since_s = min(since_s, missed[uid].since_s)
            ends_s = [at_s for at_s, _ in versions[1:]] + [self.gone_s.get(uid, float("inf"))]
            yield from (claim for (_, claim), end_s in zip(versions, ends_s, strict=True) if end_s >= since_s)

    def _is_missed(self, uid: str) -> bool:
        """Whether the leader need not know that the claim is gone. kopf lists anew when its watch breaks, and tells of
        what is there; what is not is found by the list that is made every few minutes, or by a write that is refused.
        """
        missed = self.missed().get(uid)
        return missed is not None and now_s() <= missed.until_s + UNDER_WAY_S

    def _recent(self, ip: str) -> list[Told]:
        """The last answer of a runtime, and the one that was the last a moment ago."""
        told, late_s = self.told[ip], now_s() - UNDER_WAY_S
        first = max(len(told) - 1, 0)
        while first > 0 and told[first].at_s >= late_s:
            first -= 1
        return told[first:]

    def _is_orphan(self, ip: str, model: str) -> bool:
        """Whether the runtime told of an engine of that name, and no claim answers for it."""
        snapshots = [t.snapshot for t in self._recent(ip) if t.snapshot is not None]
        return any(engine.model_name == model for snapshot in snapshots for engine in snapshot.models)

    def _is_namesakes(self, claim: Claim, ip: str) -> bool:
        """Whether the runtime told that the engine of the claim's model answers to another claim."""
        snapshots = [t.snapshot for t in self._recent(ip) if t.snapshot is not None]
        owners = [e.claim_ref for s in snapshots for e in s.models if e.model_name == claim.model]
        return any(owner is not None and owner.uid != claim.uid for owner in owners)

    def _reading_of(self, ip: str, operation_id: str) -> Told | None:
        """The answer whose time the operation id carries."""
        observed = operation_id.rpartition("/")[2]
        for told in reversed(self.told[ip]):
            if told.snapshot is not None and str(_microseconds(told.snapshot) * 1_000) == observed:
                return told
        return None

    def _claims(self) -> Iterator[Claim]:
        for (plural, _, _), obj in list(self.store.objects.items()):
            if plural == MODEL_CLAIMS.plural:
                claim = self._parsed(obj)
                if claim is not None:
                    yield claim

    def _parsed(self, obj: Object) -> Claim | None:
        """Each version is parsed once; None: it cannot be read, and takes no part in anything."""
        version = obj["metadata"]["resourceVersion"]
        if version not in self.parsed:
            try:
                self.parsed[version] = parse_claim(obj)
            except UnreadableClaim:
                self.parsed[version] = None
        return self.parsed[version]

    def _pods(self) -> Iterator[Object]:
        for (plural, _, _), obj in list(self.store.objects.items()):
            if plural == PODS.plural:
                yield obj

    def _ip_of(self, pod: str) -> str:
        return next((address_of(p) for p in self._pods() if p["metadata"]["name"] == pod), "")


def annotations_of(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def address_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def _microseconds(snapshot: wire.Snapshot) -> int:
    return (snapshot.observed_at - EPOCH) // timedelta(microseconds=1) + int(EPOCH.timestamp()) * 1_000_000


def _told_s(change: tuple[float, float]) -> float:
    return change[1]

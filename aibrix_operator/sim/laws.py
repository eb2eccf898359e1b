"""The ledger's laws, watched from outside: every write to the store and every call to a runtime is checked as it comes.

The checker knows what the API server holds and what runtimes have answered, and nothing of what the controller thinks.
It never raises in the middle of somebody's call; ``broken`` collects sentences, on which the simulated cluster fails.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Instance, InstancePhase
from aibrix_operator.api.route import Route, RouteError, RouteState, parse_route
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, REPLICA_SETS, Object, Resource
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim.parse import UnreadableClaim, parse_claim
from aibrix_operator.modelclaim.snapshot import Claim
from aibrix_operator.runtime_api import wire
from aibrix_operator.sim.store import EPOCH, LATE_STATUS, Store, now_s, wall

DRAIN_S = 5.0
LONGEST_DRAIN_S = 90.0
UNDER_WAY_S = 0.5
"""What was decided may be carried out so much later; what was true at any time since then excuses it."""


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
class Laws:
    """Watches one store and the runtimes behind its Pods."""

    store: Store
    writing: Callable[[], Mapping[str, tuple[Instance, ...]]]
    """Claim UID → instances that a status write under way would record."""
    broken: list[str] = field(default_factory=list)
    first_break: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first law that is broken, so that nobody waits for more."""
    told: dict[str, list[Told]] = field(default_factory=lambda: defaultdict(list))
    """Pod address → what its runtime answered of late, oldest first."""
    unrouted_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """(Pod, claim) → when its active route was taken away."""
    claims_before: dict[str, list[tuple[float, Claim]]] = field(default_factory=lambda: defaultdict(list))
    """Claim UID → its versions of late."""
    gone_s: dict[str, float] = field(default_factory=dict)
    """UID of a claim that is gone → since when."""
    moved_s: dict[str, float] = field(default_factory=dict)
    """Pod address → when it became another Pod's."""
    delay_s: float = 0.0
    """The last delay of watches, under which changes are on their way until ``delayed_until_s``."""
    delayed_until_s: float = float("-inf")
    deaf_since: dict[str, float] = field(default_factory=dict)
    """Operator whose watches bring nothing → since when."""
    deaf_before: tuple[float, float] = (0.0, float("-inf"))
    """The last time that one did not hear: from, to."""
    parsed: dict[str, Claim | None] = field(default_factory=dict)
    """By resourceVersion, which no two objects of a store share."""

    # --- what happens

    def answered(self, ip: str, snapshot: wire.Snapshot | None) -> None:
        """A runtime answered the controller."""
        told = self.told[ip]
        told.append(Told(now_s(), snapshot))
        del told[:-64]

    def changed(self, verb: str, resource: Resource, old: Object | None, new: Object | None) -> None:
        """The store took a change; ``verb`` is empty when it was not the controller's."""
        if self.store.watch_delay_s:
            self.delay_s, self.delayed_until_s = self.store.watch_delay_s, now_s() + self.store.watch_delay_s
        if resource == MODEL_CLAIMS and new is None and old is not None:
            self.gone_s[old["metadata"]["uid"]] = now_s()
        if resource == MODEL_CLAIMS and new is not None:
            claim, before = self._parsed(new), None if old is None else self._parsed(old)
            if claim is None:
                return
            versions = self.claims_before[claim.uid]
            versions.append((now_s(), claim))
            del versions[:-16]
            if verb in ("status", LATE_STATUS) and before is not None:
                self._check_records(before, claim, is_late=verb == LATE_STATUS)
        if resource == PODS and old is None and new is not None:
            if _address(new) in self.told:
                self.moved_s[_address(new)] = now_s()
        elif resource == PODS and verb == "annotate" and old is not None and new is not None:
            self._check_routes(old, new)

    def called(self, ip: str, request: wire.Request) -> None:
        """A call that changes something arrives at a runtime."""
        pod = next((p for p in self._pods() if _address(p) == ip), None)
        if pod is None or self._has_just_moved(ip):
            return
        name = pod["metadata"]["name"]
        if isinstance(request, wire.ActivateRequest):
            self._check_start(name, ip, request)
        elif isinstance(request, wire.KVLimitRequest):
            self._check_limit(name, ip, request)
        elif isinstance(request, wire.DeactivateRequest):
            self._check_stop(pod, ip, request)

    # --- the laws

    def _check_records(self, old: Claim, new: Claim, *, is_late: bool) -> None:
        """1: promises on a card never grow past it. 2: no record below a floor. 7: nothing more on an unjudged card.
        6: no engine without a claim that waits for its end."""
        if new.status.instances and not new.has_finalizer:
            self._break(f"law 6: {new.name} is recorded without its finalizer, so that it can vanish before its engine")
        for instance in new.status.instances:
            before = old.instance_on(instance.pod)
            record_before = 0 if before is None else before.kv_limit_bytes
            is_more = before is None or instance.kv_limit_bytes > record_before
            seat = new.seat
            if seat is None or instance.kv_limit_bytes == record_before:
                continue
            floor = min(s.kv_floor_bytes for s in self._seats(new))
            if 0 < instance.kv_limit_bytes < floor and not self._is_lent(new, instance.pod):
                self._break(f"law 2: {new.name} is recorded at {instance.kv_limit_bytes}, below its floor of {floor}")
            ip = self._ip_of(instance.pod)
            recent = self._recent(ip)
            if not is_more or not recent:
                continue
            usable = max(t.usable_bytes for t in recent)
            if usable < 0 and is_late:
                continue
            if usable < 0:
                self._break(f"law 7: {new.name} was given more on {instance.pod}, whose cards cannot be judged")
                continue
            promised = self._promised(instance.pod, ip)
            if promised > usable:
                self._break(
                    f"law 1: recording {instance.kv_limit_bytes} for {new.name} promises {promised} bytes on "
                    f"{instance.pod}, which has {usable}"
                )

    def _check_routes(self, old: Object, new: Object) -> None:
        """3: a route turns active only for an engine that is ready within its record."""
        pod, ip = new["metadata"]["name"], _address(new)
        before, after = (o["metadata"].get("annotations") or {} for o in (old, new))
        claims = {c.name: c for c in self._claims()}
        for key in {*before, *after}:
            if not key.startswith(names.ROUTE_PREFIX) or before.get(key) == after.get(key):
                continue
            name = key.removeprefix(names.ROUTE_PREFIX)
            was, route = _active_route(before.get(key)), _active_route(after.get(key))
            if route is None:
                if was is not None:
                    self.unrouted_s[pod, name] = now_s()
                continue
            self.unrouted_s.pop((pod, name), None)
            claim = claims.get(name)
            if claim is None or (claim.is_deleting and not self._is_news(claim)):
                self._break(f"law 6: a route of {name} is written on {pod}, and the claim is gone or being deleted")
                continue
            instance = claim.instance_on(pod)
            record = 0 if instance is None else instance.kv_limit_bytes
            if not any(_may_serve(told.engine_of(claim), route, record) for told in self._recent(ip)):
                self._break(
                    f"law 3: {name} is routed to {pod}:{route.port}, and the last reading does not show its engine "
                    f"ready there within its limit of {record}"
                )

    def _check_start(self, pod: str, ip: str, request: wire.ActivateRequest) -> None:
        """1: recorded before it is started. 7: nothing is started on a card that cannot be judged."""
        claim = next((c for c in self._claims() if request.claim_ref and c.uid == request.claim_ref.uid), None)
        is_recorded = claim is not None and claim.instance_on(pod) is not None
        if not is_recorded and not self._was_recorded(request.model_name, pod):
            self._break(f"law 1: {request.model_name} is started on {pod}, and no instance is recorded there")
        recent = self._recent(ip)
        if all(told.snapshot is None for told in recent):
            self._break(f"law 7: {request.model_name} is started on {pod}, whose runtime cannot be read")
        elif all(t.snapshot and t.snapshot.accelerators and t.usable_bytes < 0 for t in recent):
            self._break(f"law 7: {request.model_name} is started on {pod}, whose cards cannot be measured")

    def _check_limit(self, pod: str, ip: str, request: wire.KVLimitRequest) -> None:
        """1: no limit above its record. 2: none below what is mapped, or below the floor. 7: none grows unjudged."""
        claim = next((c for c in self._claims() if c.model == request.model_name and c.instance_on(pod)), None)
        if claim is None:
            if not self._was_recorded(request.model_name, pod):
                self._break(f"law 1: {request.model_name} on {pod} is given a limit, and no claim records it there")
            return
        instance = claim.instance_on(pod)
        record = 0 if instance is None else instance.kv_limit_bytes
        decided_on = self._reading_of(ip, request.operation_id)
        engine = None if decided_on is None else decided_on.engine_of(claim)
        if decided_on is None or engine is None:
            self._break(f"law 2: {request.model_name} on {pod} is given a limit, and no reading had shown its engine")
            return
        is_back = request.operation_id.startswith("kv-plan-back/")
        if request.limit_bytes > max(engine.kv_capacity_bytes, 0):
            if request.limit_bytes > record and not (is_back and not record):
                self._break(f"law 1: {claim.name} on {pod} is grown to {request.limit_bytes}, its record is {record}")
            if decided_on.usable_bytes < 0 and not is_back:
                self._break(f"law 7: {claim.name} on {pod} is grown, whose cards cannot be judged")
        if request.limit_bytes < engine.kv_used_bytes and not is_back:
            self._break(
                f"law 2: {claim.name} on {pod} is cut to {request.limit_bytes}, and maps {engine.kv_used_bytes}"
            )
        floor = min((s.kv_floor_bytes for s in self._seats(claim)), default=0)
        is_lent = engine.phase is wire.EnginePhase.SLEEPING and self._lends(pod)
        if request.limit_bytes < floor and request.limit_bytes != record and not is_lent:
            self._break(f"law 2: {claim.name} on {pod} is cut to {request.limit_bytes}, below its floor of {floor}")

    def _check_stop(self, pod: Object, ip: str, request: wire.DeactivateRequest) -> None:
        """6: an engine is stopped only without a route, and not with requests in it before its drain time is over."""
        name = pod["metadata"]["name"]
        claim = next((c for c in self._claims() if c.model == request.model_name and c.instance_on(name)), None)
        if claim is not None and self._is_namesakes(claim, ip):
            return
        if claim is None and (self._is_orphan(ip, request.model_name) or self._was_recorded(request.model_name, name)):
            return
        instance = None if claim is None else claim.instance_on(name)
        if instance is not None and instance.phase is InstancePhase.FAILED:
            return  # it failed there for good, or is asleep and moves; nobody is served by it
        if claim is None or claim.deleting_since is None:
            self._break(f"law 6: {request.model_name} on {name} is stopped, and no claim of it is being deleted")
            return
        if _active_route((pod["metadata"].get("annotations") or {}).get(names.route_annotation(claim.name))):
            self._break(f"law 6: {claim.name} on {name} is stopped while it is on the route")
        if wall() >= claim.deleting_since + timedelta(seconds=LONGEST_DRAIN_S):
            return
        recent = [e for t in self._recent(ip) if (e := t.engine_of(claim)) is not None]
        if recent and all(e.ready and e.requests_running + e.requests_waiting > 0 for e in recent):
            self._break(f"law 6: {claim.name} on {name} is stopped with requests in it, before 90 s are over")
        since_s = self.unrouted_s.get((name, claim.name))
        if recent and recent[-1].ready and since_s is not None and now_s() - since_s < DRAIN_S - 1e-6:
            self._break(f"law 6: {claim.name} on {name} is stopped {now_s() - since_s:.1f} s after its route went")

    # --- what is known

    def _has_just_moved(self, ip: str) -> bool:
        """Whether the address is another Pod's so lately that the controller need not know: it called the last one."""
        return now_s() - self.moved_s.get(ip, float("-inf")) <= self._late_s

    def _promised(self, pod: str, ip: str) -> int:
        """Footprints and limits promised on the Pod: of each claim the larger of its record and a write under way."""
        writing, total = self.writing(), 0
        for claim in self._claims():
            options = [claim.status.instances, writing.get(claim.uid, ())]
            instances = [i for instances in options for i in instances if i.pod == pod]
            engines = [t.engine_of(claim) for t in self._recent(ip)]
            is_gone = any(e is None or not e.alive for e in engines)
            charged = [i for i in instances if not (i.phase is InstancePhase.FAILED and is_gone)]
            asleep = [e.sleeping_footprint_bytes for e in engines if e is not None and e.sleeping_footprint_bytes]
            is_lent = (
                asleep
                and self._lends(pod)
                and max((i.kv_limit_bytes for i in charged), default=0)
                < min((s.kv_floor_bytes for s in self._seats(claim)), default=0)
            )
            if charged and is_lent:
                total += min(asleep)
            elif charged and claim.seat is not None:
                total += min(
                    s.footprint_bytes + max(i.kv_limit_bytes or s.kv_floor_bytes for i in charged)
                    for s in self._seats(claim)
                )
        return total

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
        ip = next((_address(p) for p in self._pods() if p["metadata"]["name"] == pod), "")
        engines = [t.engine_of(claim) for t in self._recent(ip)]
        return self._lends(pod) and any(e is not None and e.phase is wire.EnginePhase.SLEEPING for e in engines)

    def _is_news(self, claim: Claim) -> bool:
        """Whether the deletion of the claim is so fresh that its watch need not have told yet."""
        assert claim.deleting_since is not None
        return (wall() - claim.deleting_since).total_seconds() <= 1.0 + self._late_s

    @property
    def _late_s(self) -> float:
        """How long ago something may have changed without the controller's knowledge."""
        is_delayed = now_s() <= self.delayed_until_s + UNDER_WAY_S
        deaf_from_s, deaf_to_s = self.deaf_before
        since_s = min(self.deaf_since.values(), default=now_s())
        if now_s() <= deaf_to_s + UNDER_WAY_S:
            since_s = min(since_s, deaf_from_s)
        return UNDER_WAY_S + max(self.store.watch_delay_s, self.delay_s if is_delayed else 0.0, now_s() - since_s)

    def went_deaf(self, operator: str) -> None:
        """The operator hears of no change from now on."""
        self.deaf_since[operator] = now_s()

    def hears_again(self, operator: str) -> None:
        """It has listed everything anew."""
        self.deaf_before = self.deaf_since.pop(operator), now_s()

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
        for versions in self.claims_before.values():
            ends_s = [at_s for at_s, _ in versions[1:]] + [self.gone_s.get(versions[-1][1].uid, float("inf"))]
            for (_, claim), end_s in zip(versions, ends_s, strict=True):
                if claim.model == model and claim.instance_on(pod) and end_s >= now_s() - self._late_s:
                    return True
        return False

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
        return next((_address(p) for p in self._pods() if p["metadata"]["name"] == pod), "")

    def _break(self, sentence: str) -> None:
        self.broken.append(f"at {now_s():.3f} s: {sentence}")
        self.first_break.set()


def _address(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def _microseconds(snapshot: wire.Snapshot) -> int:
    return (snapshot.observed_at - EPOCH) // timedelta(microseconds=1) + int(EPOCH.timestamp()) * 1_000_000


def _active_route(text: str | None) -> Route | None:
    if text is None:
        return None
    try:
        route = parse_route(text)
    except RouteError:
        return None
    return route if route.state is RouteState.ACTIVE else None


def _may_serve(engine: wire.ModelState | None, route: Route, record: int) -> bool:
    """Whether requests may be sent to the engine on the route's port."""
    if engine is None or not engine.ready or not engine.alive or engine.port != route.port:
        return False
    return record == 0 or 0 <= engine.kv_capacity_bytes <= record

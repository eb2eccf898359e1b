"""What must hold of every sleep and every wake, watched from outside as they arrive at a runtime.

Beside ``laws`` and in the same way: it knows what the API server holds and what runtimes have answered, nothing of what
the controller thinks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.api.route import RouteError, RouteState, parse_route
from aibrix_operator.cluster.resource import DEPLOYMENTS, PODS, Object, Resource
from aibrix_operator.modelclaim.snapshot import Claim
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.known import Told, address_of, annotations_of
from aibrix_operator.sim.laws import Laws
from aibrix_operator.sim.store import now_s

REQUEST_LASTS_S = 290.0
"""So long a request lives at least."""
REQUEST_ENDS_S = 300.0
"""After so long it is over: an engine need not stay awake for it until it is off the Pod."""
LENDS = 'noWakeReserveWhileAsleep":true'


@dataclass(slots=True)
class SleepLaws(Laws):
    """All laws: those of the ledger, and those of sleeps and wakes."""

    operations: dict[tuple[str, str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    """(Pod UID, claim UID, request) → ids of the wakes that were sent for it."""
    served: set[tuple[str, str]] = field(default_factory=set)
    """(address, claim UID) of engines that were seen awake since they were last woken."""
    able: set[tuple[str, str]] = field(default_factory=set)
    """(address, claim UID) of engines that were seen asleep, and so can sleep."""
    request_lasts_s: float = REQUEST_LASTS_S
    lent_s: float = float("-inf")
    """When a pool's policy last ceased to lend seats."""
    asked_s: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """(Pod UID, claim name, request) → since when it is on the Pod."""
    ended_requests: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """(Pod UID, claim name) → requests that were taken off: the same one put on again is over."""

    def changed(self, verb: str, resource: Resource, old: Object | None, new: Object | None) -> None:
        """The store took a change; ``verb`` is empty when it was not the controller's."""
        Laws.changed(self, verb, resource, old, new)
        if resource == DEPLOYMENTS and LENDS in str(old) and LENDS not in str(new):
            self.lent_s = now_s()
        if resource == PODS and new is not None:
            for key, value in annotations_of(new).items():
                if key.startswith(names.WAKE_PREFIX) and (old is None or annotations_of(old).get(key) != value):
                    self.asked_s[new["metadata"]["uid"], key.removeprefix(names.WAKE_PREFIX), value] = now_s()
        if resource == PODS and verb == "annotate" and old is not None and new is not None:
            self._check_requests(old, new)

    def answered(self, ip: str, snapshot: wire.Snapshot | None) -> None:
        """A runtime answered the controller."""
        Laws.answered(self, ip, snapshot)
        for engine in () if snapshot is None else snapshot.models:
            if engine.claim_ref is not None and engine.phase is EnginePhase.ACTIVE:
                self.served.add((ip, engine.claim_ref.uid))
            if engine.claim_ref is not None and engine.phase is EnginePhase.SLEEPING:
                self.able.add((ip, engine.claim_ref.uid))

    def called(self, ip: str, request: wire.Request) -> None:
        """A call that changes something arrives at a runtime."""
        Laws.called(self, ip, request)
        pod = next((p for p in self._pods() if (p.get("status") or {}).get("podIP") == ip), None)
        if pod is None or self._has_just_moved(ip) or not isinstance(request, wire.SleepRequest | wire.WakeRequest):
            return
        name, told = pod["metadata"]["name"], [t for t in self._recent(ip) if t.snapshot is not None]
        claim = next((c for c in self._claims() if c.model == request.model_name and c.instance_on(name)), None)
        if claim is None and self._was_recorded(request.model_name, name):
            return
        if claim is None or not told:
            self._break(f"{request.model_name} on {name} is sent to sleep or woken, and nothing says that it is there")
        elif isinstance(request, wire.SleepRequest):
            self._check_sleep(pod, claim, told)
        else:
            self._check_wake(pod, claim, told, request)

    def _check_sleep(self, pod: Object, claim: Claim, told: list[Told]) -> None:
        """No request is lost by a sleep, and one engine of a card sleeps or wakes at a time."""
        name = pod["metadata"]["name"]
        engines = [e for t in told if (e := t.engine_of(claim)) is not None]
        has_slept = (address_of(pod), claim.uid) in self.able
        if claim.spec.engine != "vllm" and not has_slept and not any(e.can_sleep for e in engines):
            self._break(f"{claim.name} on {name} is put to sleep, is no vLLM engine, and nothing says that it can")
        if route_state(pod, claim) is RouteState.ACTIVE and not self._is_told_late(pod):
            self._break(f"{claim.name} on {name} is put to sleep while it is on the route")
        if not any(e.request_metrics_observed and not e.requests_running + e.requests_waiting for e in engines):
            self._break(f"{claim.name} on {name} is put to sleep, and no reading showed it without requests")
        value = annotations_of(pod).get(names.wake_annotation(claim.name))
        asked_s = self.asked_s.get((pod["metadata"]["uid"], claim.name, value or ""), float("-inf"))
        if value is not None and now_s() - asked_s < REQUEST_ENDS_S and not self._is_told_late(pod):
            self._break(f"{claim.name} on {name} is put to sleep while it is asked for")
        self._check_alone(name, claim, told, "put to sleep")

    def _check_wake(self, pod: Object, claim: Claim, told: list[Told], request: wire.WakeRequest) -> None:
        """A wake is asked for, is one operation, and finds its seat free with everybody held to what was planned."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        instance, asked = claim.instance_on(name), annotations_of(pod).get(names.wake_annotation(claim.name))
        value, is_again = _request_of(request.operation_id, asked)
        if value != asked and not self._is_told_late(pod):
            self._break(f"{claim.name} on {name} is woken, and nobody asks for it")
        sent, seat = self.operations[uid, claim.uid, value], (address_of(pod), claim.uid)
        if is_again and seat in self.served:
            sent.clear()  # it was served, could not be taken off the Pod, and the engine sleeps again
        self.served.discard(seat)
        sent.add(request.operation_id)
        if len(sent) > 1:
            self._break(f"{claim.name} on {name} is woken by {len(sent)} operations for one request")
        self._check_alone(name, claim, told, "woken")
        if all(t.usable_bytes < 0 for t in told) or instance is None or instance.phase is InstancePhase.FAILED:
            return
        taken = [self._taken(name, claim, t) for t in told]
        if all(bytes_ > t.usable_bytes for bytes_, t in zip(taken, told, strict=True) if t.usable_bytes >= 0):
            self._break(
                f"{claim.name} on {name} is woken, limits and footprints with its own seat are {min(taken)} bytes, "
                f"on a card of {told[-1].usable_bytes}"
            )

    def _check_requests(self, old: Object, new: Object) -> None:
        """A request for a sleeper stays until it serves, its time is over, or its runtime refused to wake it."""
        pod, uid, ip = new["metadata"]["name"], new["metadata"]["uid"], address_of(new)
        for key, value in annotations_of(old).items():
            if not key.startswith(names.WAKE_PREFIX) or key in annotations_of(new):
                continue
            name = key.removeprefix(names.WAKE_PREFIX)
            claim = next((c for c in self._claims() if c.name == name and not c.is_deleting), None)
            instance = None if claim is None else claim.instance_on(pod)
            ended = self.ended_requests.setdefault((uid, name), set())
            is_known = claim is not None and (value in ended or bool(self.operations[uid, claim.uid, value]))
            ended.add(value)
            if claim is None or instance is None or is_known or self._is_told_late(new):
                continue
            told, since_s = self._recent(ip), self._sleeps_since_s(claim, pod)
            engines = [t.engine_of(claim) for t in told]
            is_asleep = bool(engines) and all(e is not None and e.phase is EnginePhase.SLEEPING for e in engines)
            is_so = instance.phase is InstancePhase.SLEEPING and now_s() - since_s > self._late_s and is_asleep
            if is_so and now_s() - self.asked_s.get((uid, name, value), float("-inf")) < self.request_lasts_s:
                self._break(f"the request for {name} on {pod} is dropped, and it sleeps and was not woken")

    def _sleeps_since_s(self, claim: Claim, pod: str) -> float:
        """Since when the claim is surely recorded as asleep on the Pod."""
        return self.claims_before[claim.uid][-1][0]

    def _taken(self, pod: str, waker: Claim, told: Told) -> int:
        """Footprints and limits in force of everybody there, the waker awake at its floor or above."""
        total = 0
        for claim in self._claims():
            instance = claim.instance_on(pod)
            engine = told.engine_of(claim)
            if instance is None or claim.seat is None:
                continue
            if instance.phase is InstancePhase.FAILED and (engine is None or not engine.alive):
                continue
            footprint = min(s.footprint_bytes for s in self._seats(claim))
            floor = min(s.kv_floor_bytes for s in self._seats(claim))
            is_asleep = engine is not None and engine.phase is EnginePhase.SLEEPING and claim.uid != waker.uid
            # A record below the floor shows a seat that was lent; its own wake waits until it is free again.
            if is_asleep and (self._lends(pod) or instance.kv_limit_bytes < floor):
                held = None if engine is None else engine.sleeping_footprint_bytes
                if held:
                    total += held
                    continue
            in_force = 0 if engine is None else max(engine.kv_capacity_bytes, 0)
            total += footprint + max(floor, min(in_force, instance.kv_limit_bytes))
        return total

    def _check_alone(self, pod: str, claim: Claim, told: list[Told], what: str) -> None:
        """No other engine of the card is seen on its way out of sleep: asked for, booting, and not restarted."""
        for other in self._claims():
            instance = other.instance_on(pod)
            if other.uid == claim.uid or instance is None:
                continue
            annotations = next((annotations_of(p) for p in self._pods() if p["metadata"]["name"] == pod), {})
            engines = [t.engine_of(other) for t in told]
            is_waking = all(e is not None and e.phase is EnginePhase.BOOTING and not e.restart_count for e in engines)
            if is_waking and names.wake_annotation(other.name) in annotations and instance.port:
                self._break(f"{claim.name} on {pod} is {what} while {other.name} wakes there")

    def _lends(self, pod: str) -> bool:
        """Whether the Pod's pool gives sleepers' seats away, or did when the controller last heard of it."""
        return Laws._lends(self, pod) or now_s() - self.lent_s <= self._late_s


def route_state(pod: Object, claim: Claim) -> RouteState | None:
    text = annotations_of(pod).get(names.route_annotation(claim.name))
    if text is None:
        return None
    try:
        return parse_route(text).state
    except RouteError:
        return None


def _request_of(operation_id: str, asked: str | None) -> tuple[str, bool]:
    """The request that a wake is for, and whether it is the one on the Pod once more: then a time follows it."""
    before, _, last = operation_id.rpartition("/")
    is_again = asked is not None and before.endswith(f"/{asked}")
    return (asked, True) if is_again and asked is not None else (last, False)

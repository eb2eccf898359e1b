"""The order in which things may be done, watched from outside: what must be seen or recorded before the next step.

Beside ``laws`` and ``sleep_laws`` and in the same way: it knows what the API server holds and what runtimes have
answered, nothing of what the controller thinks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Instance, InstancePhase
from aibrix_operator.api.pool_policy import Lifecycle, PolicyError, parse_policy
from aibrix_operator.api.route import RouteState
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, REPLICA_SETS, Object, Resource
from aibrix_operator.modelclaim.snapshot import Claim
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.wire import EnginePhase, ModelState
from aibrix_operator.sim.known import Told, address_of, annotations_of
from aibrix_operator.sim.sleep_laws import SleepLaws, route_state
from aibrix_operator.sim.store import now_s

SECOND_LOOK_S = 1.0
"""The look that proves idleness comes so long after the route went: until then what gateways had sent may arrive."""
DECIDED_S = 0.05
"""A call to a runtime waits for nobody: a reading that came longer before it was there to be decided on."""
ANSWERED_WITHIN_S = 3.0
"""An engine above its record is off the route so long after it was first seen there."""
HELD_FOR_SURE_S = 2.0
"""So long after an engine was put to sleep for somebody, only what is seen can have ended what is held for it."""
TROUBLE_LASTS_S = 60.0
"""So long after calls to the API server failed, a write may still be waiting for its next try."""
_UP = (EnginePhase.ACTIVE, EnginePhase.BOOTING, EnginePhase.SLEEPING)


@dataclass(frozen=True, slots=True)
class MadeFor:
    """Room is made on a Pod for a claim."""

    claim_uid: str
    model: str
    """Whose engine was put to sleep for it."""
    since_s: float


@dataclass(frozen=True, slots=True)
class Used:
    """The last use of an engine, and what a sleep that is under way may have been decided on."""

    at_s: float
    completions: int | None
    before_s: float
    """The last use before what may be news."""

    def known_s(self) -> float:
        """The last use that the controller has had the time to hear of."""
        return self.at_s if now_s() - self.at_s > DECIDED_S else self.before_s


@dataclass(slots=True)
class OrderLaws(SleepLaws):
    """All laws: these, and those of the ledger and of sleeps."""

    stops: set[tuple[str, str]] = field(default_factory=set)
    """(address, model) of the engines that were asked to stop and not started since."""
    removed_s: dict[str, float] = field(default_factory=dict)
    """Claim UID → when its object, or an instance of it, ceased to be."""
    above_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """(Pod, claim) → since when its routed engine is seen above its record."""
    made_for: dict[str, MadeFor] = field(default_factory=dict)
    """Pod → for whom room is made there."""
    used: dict[tuple[str, str], Used] = field(default_factory=dict)
    """(address, model) → when its engine was last seen to begin or to complete something."""
    slept: set[tuple[str, str]] = field(default_factory=set)
    """(Pod, claim UID) of engines that were seen asleep there and not published as active since."""
    sleeps: dict[tuple[str, str], Told | None] = field(default_factory=dict)
    """(address, model) → the last answer of its runtime when its engine was last sent to sleep."""
    policies: dict[str, list[tuple[float, Lifecycle | None]]] = field(default_factory=lambda: defaultdict(list))
    """Deployment UID → its policies, each with the time of its beginning."""
    trouble_s: float = float("-inf")
    """When calls to the API server were last seen to be troubled."""

    # --- what happens

    def answered(self, ip: str, snapshot: wire.Snapshot | None) -> None:
        """A runtime answered the controller."""
        SleepLaws.answered(self, ip, snapshot)
        self._look_for_trouble()
        pod = next((p for p in self._pods() if address_of(p) == ip), None)
        name = "" if pod is None else pod["metadata"]["name"]
        if snapshot is None:
            # The last answer may have been thrown away, because it was on its way as the runtime was written to.
            self.above_s = {key: since_s for key, since_s in self.above_s.items() if key[0] != name}
            return
        made = self.made_for.get(name)
        for engine in snapshot.models:
            if engine.phase is EnginePhase.SLEEPING and engine.claim_ref is not None:
                self.slept.add((name, engine.claim_ref.uid))
            elif made is not None and engine.model_name == made.model:
                # A sleep that came to nothing makes no room; that it is carried out later after all is known to nobody.
                self.made_for.pop(name, None)
            known, total = self.used.get((ip, engine.model_name)), engine.request_success_total
            is_used = engine.phase is not EnginePhase.ACTIVE or known is None or known.completions != total
            if is_used or not engine.request_metrics_observed or engine.requests_running + engine.requests_waiting:
                before_s = float("-inf") if known is None else known.known_s()
                self.used[ip, engine.model_name] = Used(now_s(), total, before_s)
        if pod is not None:
            self._check_above(pod, ip)

    def changed(self, verb: str, resource: Resource, old: Object | None, new: Object | None) -> None:
        """The store took a change; ``verb`` is empty when it was not the controller's."""
        SleepLaws.changed(self, verb, resource, old, new)
        self._look_for_trouble()
        if resource == DEPLOYMENTS and new is not None:
            self.policies[new["metadata"]["uid"]].append((now_s(), _lifecycle(new)))
        elif resource == PODS and verb == "annotate" and old is not None and new is not None:
            self._check_moves(old, new)
        elif resource == MODEL_CLAIMS and old is not None:
            before, after = self._parsed(old), None if new is None else self._parsed(new)
            if before is None:
                return
            left = before.status.instances if after is None else _left(before, after)
            if left:
                self.removed_s[before.uid] = now_s()
                # It had the room that was made for it; what came of that ends the hold too.
                self.made_for = {pod: made for pod, made in self.made_for.items() if made.claim_uid != before.uid}
            if verb == "status" and after is not None:
                self._check_left_behind(before, left, "leaves its record")
                self._check_published(before, after)
            elif verb == "finalize" and after is not None and before.has_finalizer and not after.has_finalizer:
                self._check_left_behind(before, before.status.instances, "loses its finalizer")

    def called(self, ip: str, request: wire.Request) -> None:
        """A call that changes something arrives at a runtime."""
        SleepLaws.called(self, ip, request)
        pod = next((p for p in self._pods() if (p.get("status") or {}).get("podIP") == ip), None)
        if pod is None:
            return
        model = str(getattr(request, "model_name", ""))
        if isinstance(request, wire.DeactivateRequest):
            self.stops.add((ip, model))
        elif isinstance(request, wire.ActivateRequest):
            self.stops.discard((ip, model))
        if self._has_just_moved(ip):
            return
        name = pod["metadata"]["name"]
        claim = next((c for c in self._claims() if c.model == model and c.instance_on(name)), None)
        if isinstance(request, wire.ActivateRequest):
            self._check_twice(name, ip, claim)
            self._check_strangers(name, ip, f"{model} is started")
        elif isinstance(request, wire.KVLimitRequest) and claim is not None:
            is_routed = route_state(pod, claim) is RouteState.ACTIVE
            if request.operation_id.startswith("kv-limit/") and is_routed and not self._is_told_late(pod):
                self._break(f"law 3: the limit of {claim.name} on {name} is written while it is on the route")
        elif isinstance(request, wire.SleepRequest) and claim is not None:
            self._check_order_of_sleep(pod, ip, claim, request)
            self.sleeps[ip, model] = next(reversed(self.told[ip]), None)

    # --- records and phases

    def _check_published(self, before: Claim, after: Claim) -> None:
        for instance in after.status.instances:
            ip, earlier = self._ip_of(instance.pod), before.instance_on(instance.pod)
            recent = self._recent(ip)
            if not recent or any(t.snapshot is None for t in recent):
                continue
            engines = [t.engine_of(after) for t in recent]
            record, record_before = instance.kv_limit_bytes, 0 if earlier is None else earlier.kv_limit_bytes
            is_adopted = earlier is None and any(e is not None for e in engines)
            if record > record_before and not is_adopted:
                self._check_strangers(instance.pod, ip, f"{after.name} is given more")
                self._check_kept_for_another(instance.pod, ip, after)
            # What is more than the card has was promised by nobody: another hand wrote it, and it may go at once.
            is_ours = all(t.snapshot is not None and record_before <= t.snapshot.usable_bytes for t in recent)
            if record < record_before and is_ours and instance.phase is not InstancePhase.FAILED:
                # What boots is held to nothing yet, however low its limit was seen before it crashed.
                held = [e for e in engines if e is not None and e.alive and e.phase is not EnginePhase.BOOTING]
                if len(held) == len(engines) and all(e.kv_capacity_bytes > record for e in held):
                    self._break(f"law 1: the record of {after.name} falls to {record}, and no reading shows that limit")
                if all(e is not None and e.alive and e.kv_used_bytes > record for e in engines):
                    self._break(f"law 2: the record of {after.name} falls to {record}, and every reading maps more")
            is_active = instance.phase is InstancePhase.ACTIVE and not after.is_deleting
            # Who leads anew may write of something else before it has read the runtime: that says nothing of this.
            is_said_again = earlier is not None and earlier.phase is instance.phase and record == record_before
            if is_active and not is_said_again and not any(_may_be_active(e, record) for e in engines):
                self._break(
                    f"law 3: {after.name} is published as active, and no reading shows it ready within {record}"
                )
            if is_active:
                self.slept.discard((instance.pod, after.uid))

    def _check_left_behind(self, claim: Claim, instances: tuple[Instance, ...], what: str) -> None:
        """6: an engine that is up was asked to stop before nobody answers for it any more."""
        for instance in instances:
            ip = self._ip_of(instance.pod)
            engines = [t.engine_of(claim) for t in self._recent(ip)]
            if engines and all(_is_up(e) for e in engines) and (ip, claim.model) not in self.stops:
                self._break(f"law 6: {claim.name} {what}, and its engine on {instance.pod} was not asked to stop")

    def _check_strangers(self, pod: str, ip: str, what: str) -> None:
        """7: nothing is done on a card with an engine that nobody answers for."""
        writing = {uid for uid, instances in self.writing().items() if any(i.pod == pod for i in instances)}
        seated = {c.uid for c in self._claims() if c.instance_on(pod)} | writing
        late_s = now_s() - self._late_s
        for told in (recent := self._recent(ip)):
            strangers = [
                e
                for e in (() if told.snapshot is None else told.snapshot.models)
                if e.claim_ref is not None
                and e.claim_ref.uid not in seated
                and (e.alive or e.phase is not EnginePhase.FAILED)
                and self.removed_s.get(e.claim_ref.uid, float("-inf")) < late_s
                and not self._is_missed(e.claim_ref.uid)
            ]
            if not strangers:
                return
        if recent:
            self._break(f"law 7: {what} on {pod}, where {strangers[0].model_name} answers to no claim")

    def _check_twice(self, pod: str, ip: str, claim: Claim | None) -> None:
        engines = [] if claim is None else [t.engine_of(claim) for t in self._recent(ip)]
        if claim is not None and engines and all(_is_up(e) for e in engines):
            self._break(f"{claim.name} is started on {pod}, where every reading shows its engine")

    def _check_above(self, pod: Object, ip: str) -> None:
        """3: what is above its record leaves the route."""
        told = self.told[ip][-1]
        for claim in self._claims():
            key, instance = (pod["metadata"]["name"], claim.name), claim.instance_on(pod["metadata"]["name"])
            engine = told.engine_of(claim)
            is_above = (
                instance is not None
                and engine is not None
                and not claim.is_deleting
                and engine.ready
                and 0 < instance.kv_limit_bytes < engine.kv_capacity_bytes
                and route_state(pod, claim) is RouteState.ACTIVE
            )
            if not is_above or self.deaf_since or self.store.watch_delay_s:
                self.above_s.pop(key, None)  # a record that another hand lowered is heard of first
            elif now_s() - self.above_s.setdefault(key, now_s()) > ANSWERED_WITHIN_S and not self._is_troubled:
                self._break(f"law 3: {claim.name} on {key[0]} is above its record, and still on the route")

    # --- routes

    def _check_moves(self, old: Object, new: Object) -> None:
        """A move is published before its route is."""
        before, pod = annotations_of(old), new["metadata"]["name"]
        for claim in self._claims():
            key, instance = names.route_annotation(claim.name), claim.instance_on(pod)
            text = annotations_of(new).get(key, "")
            if before.get(key) == text or '"reason":"Moving"' not in text:
                continue
            if instance is None and now_s() - self.removed_s.get(claim.uid, float("-inf")) <= self._late_s:
                continue  # it said so when the route was sent, and has arrived elsewhere meanwhile
            if instance is None or instance.phase is not InstancePhase.FAILED:
                self._break(f"{claim.name} on {pod} is routed as moving, and its status does not say so")

    # --- sleeps

    def _check_order_of_sleep(self, pod: Object, ip: str, claim: Claim, request: wire.SleepRequest) -> None:
        name = pod["metadata"]["name"]
        since_s = self.unrouted_s.get((name, claim.name))
        if since_s is not None:
            settled_s = since_s + SECOND_LOOK_S - 1e-6
            if not any(t.at_s >= settled_s and t.engine_of(claim) is not None for t in self.told[ip]):
                self._break(f"{claim.name} on {name} is put to sleep without a look after its route went")
        for other in self._claims():
            instance = other.instance_on(name)
            engines = [t.engine_of(other) for t in self._recent(ip)]
            is_on_its_way = (
                other.uid != claim.uid
                and not self._is_troubled
                and instance is not None
                and instance.phase is InstancePhase.ACTIVE
                and route_state(pod, other) is RouteState.SLEEPING
                and all(e is not None and e.phase is EnginePhase.ACTIVE for e in engines)
                and not self._came_to_nothing(name, ip, other)
            )
            if is_on_its_way:
                self._break(f"{claim.name} on {name} is put to sleep while {other.name} is on its way there")
        if request.operation_id.startswith("put-back/"):
            self._check_put_back(name, ip, claim)
        else:
            self._check_window(pod, ip, claim, request)

    def _came_to_nothing(self, pod: str, ip: str, claim: Claim) -> bool:
        """Whether the claim's engine was sent to sleep since its route went, and its runtime has been read since: what
        is seen awake then stays so, and its route is about to come back."""
        before, since_s = self.sleeps.get((ip, claim.model)), self.unrouted_s.get((pod, claim.name), float("inf"))
        return before is not None and before.at_s >= since_s and before is not self.told[ip][-1]

    def _check_put_back(self, pod: str, ip: str, claim: Claim) -> None:
        """Only a sleeper that came back awake is put to sleep without having been idle, and only for want of room."""
        if (pod, claim.uid) not in self.slept:
            self._break(f"{claim.name} on {pod} is put back to sleep, and has not slept there since it served")
        seated = {c.uid for c in self._claims() if c.instance_on(pod)}
        if any(c.uid not in seated and c.instance_on(pod) for c in self._versions_of_late()):
            return  # the seat of one that is there no more may be what there is no room beside
        made = self.made_for.get(pod)  # a seat that is kept for another may be what there is no room beside
        waiting = [c.seat for c in self._claims() if made is not None and c.uid == made.claim_uid]
        held = sum(seat.total_bytes for seat in waiting if seat is not None) + self._asked_back(pod, ip, claim)
        told = [t for t in self._recent(ip) if t.usable_bytes >= 0]
        least = self._least(pod, ip)  # what engines map past their records counts too
        if told and all(max(self._taken(pod, claim, t), least) + held <= t.usable_bytes for t in told):
            self._break(f"{claim.name} on {pod} is put back to sleep, and its card has room for it")

    def _asked_back(self, pod: str, ip: str, claim: Claim) -> int:
        """What the other sleepers there that are asked for need beside what they hold: their full seats are theirs."""
        annotations = next((annotations_of(p) for p in self._pods() if p["metadata"]["name"] == pod), {})
        total = 0
        for other in self._claims():
            engine = self.told[ip][-1].engine_of(other)
            is_asleep = engine is not None and engine.phase is EnginePhase.SLEEPING
            is_asked = names.wake_annotation(other.name) in annotations and other.uid != claim.uid
            if engine is not None and is_asleep and is_asked and other.seat is not None and other.instance_on(pod):
                total += other.seat.total_bytes - (engine.sleeping_footprint_bytes or 0)
        return total

    def _check_window(self, pod: Object, ip: str, claim: Claim, request: wire.SleepRequest) -> None:
        """The pool's policy wants the sleep, and the engine has been idle for as long as it says."""
        name, lifecycles = pod["metadata"]["name"], self._lifecycles(pod)
        if request.operation_id.startswith("make-room/"):
            windows = [p.make_room_after_s for p in lifecycles if p is not None and p.no_wake_reserve_while_asleep]
            waiting = [c for c in self._claims() if f"/{c.uid}/" in request.operation_id and not c.status.instances]
            if waiting:
                self.made_for[name] = MadeFor(waiting[0].uid, claim.model, now_s())
        else:
            windows = [p.sleep_after_seconds for p in lifecycles if p is not None and p.sleep_after_seconds]
        if not windows:
            self._break(f"{claim.name} on {name} is put to sleep, and the policy of its pool does not say so")
            return
        used = self.used.get((ip, claim.model))
        used_s = float("-inf") if used is None else used.known_s()
        if now_s() - used_s < min(windows) - 1e-6:
            self._break(
                f"{claim.name} on {name} is put to sleep {now_s() - used_s:.1f} s after it was used, "
                f"and its policy says {min(windows)} s"
            )

    def _check_kept_for_another(self, pod: str, ip: str, claim: Claim) -> None:
        """What room is being made for is given to nobody else, neither as a seat nor as KV."""
        made = self.made_for.get(pod)
        if made is None or made.claim_uid == claim.uid or now_s() - made.since_s > HELD_FOR_SURE_S:
            return
        waiting = next((c for c in self._claims() if c.uid == made.claim_uid), None)
        is_over = waiting is None or waiting.seat is None or waiting.is_deleting or made.claim_uid in self._seated()
        annotations = next((annotations_of(p) for p in self._pods() if p["metadata"]["name"] == pod), {})
        is_asked = any(key.startswith(names.WAKE_PREFIX) for key in annotations)
        if is_over or is_asked or not self._lends(pod):
            return
        assert waiting is not None
        assert waiting.seat is not None
        usable, promised = max(t.usable_bytes for t in self._recent(ip)), self._promised(pod, ip)
        # Where it would not even fit beside what everybody keeps, what was made was not enough, and the hold is over.
        fits_at_all = self._least(pod, ip) + waiting.seat.total_bytes <= usable
        if fits_at_all and promised + waiting.seat.total_bytes > usable:
            self._break(f"{claim.name} is given room on {pod} that is being made for {waiting.name}")

    # --- what is known

    def _least(self, pod: str, ip: str) -> int:
        """What everybody on the Pod keeps now: footprints with mapped KV or floors, and of sleepers what they hold."""
        total = 0
        for claim in self._claims():
            engine = self.told[ip][-1].engine_of(claim)
            if claim.instance_on(pod) is None or claim.seat is None:
                continue
            is_asleep = engine is not None and engine.phase is EnginePhase.SLEEPING
            held = engine.sleeping_footprint_bytes if engine is not None and is_asleep else None
            mapped = 0 if engine is None else max(engine.kv_used_bytes, 0)
            total += held or claim.seat.footprint_bytes + max(claim.seat.kv_floor_bytes, mapped)
        return total

    def _seated(self) -> set[str]:
        """UIDs of claims with an instance, recorded or about to be."""
        return {c.uid for c in self._claims() if c.status.instances} | {uid for uid, i in self.writing().items() if i}

    def _lifecycles(self, pod: Object) -> list[Lifecycle | None]:
        """The policies of the Pod's pool that the controller may go by: the last one, and what it was a moment ago."""
        owners = {o["uid"] for o in pod["metadata"].get("ownerReferences", ())}
        above = {
            o["uid"]
            for (plural, _, _), replica_set in self.store.objects.items()
            if plural == REPLICA_SETS.plural and replica_set["metadata"]["uid"] in owners
            for o in replica_set["metadata"].get("ownerReferences", ())
        }
        found: list[Lifecycle | None] = []
        for uid in above:
            known = self.policies[uid]
            ends = [begins_s for begins_s, _ in known[1:]] + [float("inf")]
            found += [p for (_, p), end_s in zip(known, ends, strict=True) if end_s >= now_s() - self._late_s]
        return found

    def _look_for_trouble(self) -> None:
        if self.store.delay is not None:
            self.trouble_s = now_s()

    @property
    def _is_troubled(self) -> bool:
        return now_s() - self.trouble_s <= TROUBLE_LASTS_S


def _left(before: Claim, after: Claim) -> tuple[Instance, ...]:
    """Instances that are recorded no more."""
    return tuple(i for i in before.status.instances if after.instance_on(i.pod) is None)


def _is_up(engine: ModelState | None) -> bool:
    return engine is not None and engine.alive and engine.phase in _UP


def _may_be_active(engine: ModelState | None, record: int) -> bool:
    if engine is None or not engine.ready or not engine.alive:
        return False
    return record == 0 or 0 <= engine.kv_capacity_bytes <= record


def _lifecycle(deployment: Object) -> Lifecycle | None:
    text = (deployment["metadata"].get("annotations") or {}).get(names.POOL_POLICY_ANNOTATION)
    try:
        policy = None if text is None else parse_policy(text)
    except PolicyError:
        return None
    return None if policy is None else policy.lifecycle

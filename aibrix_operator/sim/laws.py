"""The ledger's laws, watched from outside: every write to the store and every call to a runtime is checked as it comes.

The checker knows what the API server holds and what runtimes have answered, and nothing of what the controller thinks.
It never raises in the middle of somebody's call; ``broken`` collects sentences, on which the simulated cluster fails.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.api.route import Route, RouteError, RouteState, parse_route
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS, Object, Resource
from aibrix_operator.modelclaim.snapshot import Claim
from aibrix_operator.runtime_api import wire
from aibrix_operator.sim.known import AT_ONCE_S, Known, address_of, annotations_of
from aibrix_operator.sim.store import LATE_STATUS, now_s, wall

DRAIN_S = 5.0
LONGEST_DRAIN_S = 90.0


@dataclass(slots=True)
class Laws(Known):
    """Judges what it hears of."""

    broken: list[str] = field(default_factory=list)
    first_break: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first law that is broken, so that nobody waits for more."""
    unrouted_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """(Pod, claim) → when its active route was taken away."""

    # --- what happens

    def changed(self, verb: str, resource: Resource, old: Object | None, new: Object | None) -> None:
        """The store took a change; ``verb`` is empty when it was not the controller's."""
        if (told_s := self.store.told_s()) > now_s() + AT_ONCE_S:
            self.on_their_way.append((now_s(), told_s))
        if (
            resource == PODS
            and not verb
            and new is not None
            and (old is None or annotations_of(old) != annotations_of(new))
        ):
            self.annotated_s[new["metadata"]["uid"]] = now_s()
        if resource == MODEL_CLAIMS and new is None and old is not None:
            self.gone_s[old["metadata"]["uid"]] = now_s()
        if resource == MODEL_CLAIMS and new is not None:
            claim, before = self._parsed(new), None if old is None else self._parsed(old)
            if claim is None:
                return
            versions = self.claims_before[claim.uid]
            versions.append((now_s(), claim))
            if not verb:
                self.by_hand.add(claim.resource_version)
            del versions[:-16]
            if verb in ("status", LATE_STATUS) and before is not None:
                self._check_records(before, claim, is_late=verb == LATE_STATUS)
        if resource == PODS and old is None and new is not None:
            is_anothers = address_of(new) in self.moved_s  # also where the controller has not heard of that one yet
            self.moved_s[address_of(new)] = now_s() if is_anothers else float("-inf")
        elif resource == PODS and verb == "annotate" and old is not None and new is not None:
            self._check_routes(old, new)

    def called(self, ip: str, request: wire.Request) -> None:
        """A call that changes something arrives at a runtime."""
        pod = next((p for p in self._pods() if address_of(p) == ip), None)
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
            is_adopted = before is None and all(_is_held_to(t.engine_of(new), instance.kv_limit_bytes) for t in recent)
            promised = self._promised(instance.pod, ip, is_adopting=is_adopted)
            if promised > usable:
                self._break(
                    f"law 1: recording {instance.kv_limit_bytes} for {new.name} promises {promised} bytes on "
                    f"{instance.pod}, which has {usable}"
                )

    def _check_routes(self, old: Object, new: Object) -> None:
        """3: a route turns active only for an engine that is ready within its record."""
        pod, ip = new["metadata"]["name"], address_of(new)
        before, after = (o["metadata"].get("annotations") or {} for o in (old, new))
        claims = {c.name: c for c in self._claims()}
        for key in {*before, *after}:
            if not key.startswith(names.ROUTE_PREFIX) or before.get(key) == after.get(key):
                continue
            name = key.removeprefix(names.ROUTE_PREFIX)
            was, route = _active_route(before.get(key)), _active_route(after.get(key))
            if route is None:
                if was is not None:  # one that another hand wrote since the controller's own went begins nothing anew
                    self.unrouted_s.setdefault((pod, name), now_s())
                continue
            self.unrouted_s.pop((pod, name), None)
            claim = claims.get(name)
            if claim is None and any(c.name == name and c.instance_on(pod) for c in self._versions_of_late()):
                continue  # and that it is gone is not known yet
            if claim is None or (claim.is_deleting and not self._is_news(claim)):
                self._break(f"law 6: a route of {name} is written on {pod}, and the claim is gone or being deleted")
                continue
            instance = claim.instance_on(pod)
            if instance is None and self._was_recorded(claim.model, pod):
                continue  # its namesake was, and that this one took its place is not known yet
            record = 0 if instance is None else instance.kv_limit_bytes
            records = {record, *self._records_of_late(claim.uid, pod)}
            engines = [told.engine_of(claim) for told in self._recent(ip)]
            if not any(_may_serve(e, route, r) for e in engines for r in records):
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
        route = annotations_of(pod).get(names.route_annotation(claim.name))
        if _active_route(route) and not self._is_told_late(pod):  # a route that was sent long ago can arrive once more
            self._break(f"law 6: {claim.name} on {name} is stopped while it is on the route")
        if wall() >= claim.deleting_since + timedelta(seconds=LONGEST_DRAIN_S):
            return
        recent = [e for t in self._recent(ip) if (e := t.engine_of(claim)) is not None]
        if recent and all(e.ready and e.requests_running + e.requests_waiting > 0 for e in recent):
            self._break(f"law 6: {claim.name} on {name} is stopped with requests in it, before 90 s are over")
        since_s = self.unrouted_s.get((name, claim.name))
        if recent and recent[-1].ready and since_s is not None and now_s() - since_s < DRAIN_S - 1e-6:
            self._break(f"law 6: {claim.name} on {name} is stopped {now_s() - since_s:.1f} s after its route went")

    def forgive(self) -> None:
        """Forget what was broken so far: lies were told, and the laws see the truth."""
        self.broken.clear()
        self.first_break.clear()

    def _break(self, sentence: str) -> None:
        self.broken.append(f"at {now_s():.3f} s: {sentence}")
        self.first_break.set()


def _active_route(text: str | None) -> Route | None:
    if text is None:
        return None
    try:
        route = parse_route(text)
    except RouteError:
        return None
    return route if route.state is RouteState.ACTIVE else None


def _is_held_to(engine: wire.ModelState | None, record: int) -> bool:
    """Whether the engine runs within the record already."""
    return engine is not None and engine.alive and 0 <= engine.kv_capacity_bytes <= record


def _may_serve(engine: wire.ModelState | None, route: Route, record: int) -> bool:
    """Whether requests may be sent to the engine on the route's port."""
    if engine is None or not engine.ready or not engine.alive or engine.port != route.port:
        return False
    return record == 0 or 0 <= engine.kv_capacity_bytes <= record

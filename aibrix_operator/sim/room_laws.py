"""Who yields so that another gets room, and for how long somebody may wait for it, watched from outside.

Beside ``order_laws`` and in the same way: it knows what the API server holds and what runtimes answered, nothing of
what the controller thinks. What a leader cannot know yet (it began a moment ago, its clock is off, the API server does
not answer) is held against nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from aibrix_operator.api import names
from aibrix_operator.api.conditions import find_condition
from aibrix_operator.api.modelclaim import ConditionType, InstancePhase
from aibrix_operator.api.route import RouteState
from aibrix_operator.api.term import Term
from aibrix_operator.cluster.resource import PODS, Object, Resource
from aibrix_operator.modelclaim.parse import parse_time
from aibrix_operator.modelclaim.snapshot import Claim
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.known import address_of, annotations_of
from aibrix_operator.sim.order_laws import OrderLaws
from aibrix_operator.sim.sender import SENDER
from aibrix_operator.sim.sleep_laws import route_state
from aibrix_operator.sim.store import EPOCH, now_s

LEAD_S = 12.0
"""Engines whose idle times differ by less may be taken in any order: one of them was seen at rest a round earlier."""
STANDS_AT_MOST_S = 315.0
"""A request that cannot be served is taken off after five minutes and a round."""

_ACTIVE = '"state":"active"'

Leader: TypeAlias = tuple[str, Term | None]


@dataclass(slots=True)
class RoomLaws(OrderLaws):
    """All laws, for schedules in which little else excuses what is done."""

    request_lasts_s: float = 300.0 - 1e-6
    read_since_s: dict[tuple[str, str], tuple[Leader, float]] = field(default_factory=dict)
    """(address, model) → who reads that runtime now, and since when it knows of that engine."""
    waits_since_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """(Pod UID, claim UID) → since when a sleeper that is asked for is seen, by who reads now, to sleep on."""

    routed_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """(Pod UID, claim name) → when its route last came (back): a sleep that was called off begins an idle time anew."""

    def changed(self, verb: str, resource: Resource, old: Object | None, new: Object | None) -> None:
        """The store took a change; ``verb`` is empty when it was not the controller's."""
        OrderLaws.changed(self, verb, resource, old, new)
        if resource == PODS and new is not None:
            before = {} if old is None else annotations_of(old)
            for key, text in annotations_of(new).items():
                if key.startswith(names.ROUTE_PREFIX) and _ACTIVE in text and _ACTIVE not in before.get(key, ""):
                    self.routed_s[new["metadata"]["uid"], key.removeprefix(names.ROUTE_PREFIX)] = now_s()

    def answered(self, ip: str, snapshot: wire.Snapshot | None) -> None:
        """A runtime answered the controller."""
        OrderLaws.answered(self, ip, snapshot)
        sender = SENDER.get()
        if snapshot is None or sender is None:
            return
        leader = (sender.name, sender.term)
        for engine in snapshot.models:
            known = self.read_since_s.get((ip, engine.model_name))
            if known is None or known[0] != leader:
                self.read_since_s[ip, engine.model_name] = leader, now_s()
        pod = next((p for p in self._pods() if address_of(p) == ip), None)
        if pod is not None:
            self._check_ended(pod, ip, leader)

    def called(self, ip: str, request: wire.Request) -> None:
        """A call that changes something arrives at a runtime."""
        OrderLaws.called(self, ip, request)
        if not isinstance(request, wire.SleepRequest) or not request.operation_id.startswith("make-room/"):
            return
        pod = next((p for p in self._pods() if address_of(p) == ip), None)
        if pod is None or self._has_just_moved(ip):
            return
        name = pod["metadata"]["name"]
        claims = [c for c in self._claims() if c.instance_on(name) is not None]
        chosen = next((c for c in claims if c.model == request.model_name), None)
        if chosen is not None:
            self._check_order(pod, ip, chosen, claims)

    def _sleeps_since_s(self, claim: Claim, pod: str) -> float:
        """Since when the claim is recorded as asleep on the Pod, whatever else its status said in between."""
        since_s = now_s()
        for at_s, version in reversed(self.claims_before[claim.uid]):
            instance = version.instance_on(pod)
            if instance is None or instance.phase is not InstancePhase.SLEEPING:
                break
            since_s = at_s
        return since_s

    def _check_order(self, pod: Object, ip: str, chosen: Claim, claims: list[Claim]) -> None:
        """Of those that could be put to sleep for somebody, the one that has been idle longest is."""
        idle_since_s = self._idle_since_s(ip, chosen)
        for other in claims:
            since_s = self._idle_since_s(ip, other)
            if other.uid == chosen.uid or since_s is None or idle_since_s is None:
                continue
            if since_s + LEAD_S < idle_since_s and self._could_sleep(pod, ip, other, idle_since_s):
                self._break(
                    f"{chosen.name} on {pod['metadata']['name']} is put to sleep to make room, idle for "
                    f"{now_s() - idle_since_s:.0f} s, before {other.name}, idle for {now_s() - since_s:.0f} s"
                )

    def _could_sleep(self, pod: Object, ip: str, claim: Claim, idle_since_s: float) -> bool:
        """Whether nothing has stood in the way of this engine's sleep since long before another was idle."""
        instance = claim.instance_on(pod["metadata"]["name"])
        is_served = instance is not None and instance.phase is InstancePhase.ACTIVE
        is_quiet = now_s() - self.claims_before[claim.uid][-1][0] > LEAD_S and not self._is_troubled
        if self.routed_s.get((pod["metadata"]["uid"], claim.name), 0.0) + LEAD_S > idle_since_s:
            return False
        if not is_served or not is_quiet or claim.is_deleting or route_state(pod, claim) is not RouteState.ACTIVE:
            return False
        if claim.spec.engine != "vllm" or names.wake_annotation(claim.name) in annotations_of(pod):
            return False
        engines = [t.engine_of(claim) for t in self.told[ip] if now_s() - t.at_s <= LEAD_S]
        return bool(engines) and all(
            e is not None and e.phase is EnginePhase.ACTIVE and e.ready and e.can_sleep is not False for e in engines
        )

    def _idle_since_s(self, ip: str, claim: Claim) -> float | None:
        """Since when who reads the runtime can take the engine for idle; None when that is not known."""
        used, known = self.used.get((ip, claim.model)), self.read_since_s.get((ip, claim.model))
        ready = find_condition(claim.status.conditions, ConditionType.READY)
        ready_at = None if ready is None or ready.status != "True" else parse_time(ready.last_transition_time)
        if used is None or known is None or ready_at is None or self.clocks_are_off():
            return None
        return max(used.known_s(), known[1], (ready_at - EPOCH) / timedelta(seconds=1))

    def _check_ended(self, pod: Object, ip: str, leader: Leader) -> None:
        """A request that nobody can serve ends after its time."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        told = self.told[ip][-1]
        for claim in self._claims():
            instance, engine = claim.instance_on(name), told.engine_of(claim)
            value = annotations_of(pod).get(names.wake_annotation(claim.name))
            is_asleep = (
                instance is not None
                and instance.phase is InstancePhase.SLEEPING
                and engine is not None
                and engine.phase is EnginePhase.SLEEPING
            )
            if value is None or not is_asleep or claim.is_deleting or self.deaf_since or self._is_troubled:
                self.waits_since_s.pop((uid, claim.uid), None)
                continue
            known = self.read_since_s.get((ip, claim.model))
            asked_s = self.asked_s.get((uid, claim.name, value), now_s())
            since_s = max(asked_s, now_s() if known is None or known[0] != leader else known[1])
            since_s = max(since_s, self.waits_since_s.setdefault((uid, claim.uid), now_s()))
            if now_s() - since_s > STANDS_AT_MOST_S:
                self._break(f"the request for {claim.name} on {name} stands for {now_s() - since_s:.0f} s")

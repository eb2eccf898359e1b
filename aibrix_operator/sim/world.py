"""A whole cluster in memory under the virtual clock: the store, the runtimes, and the controller unchanged.

``async with SimulatedCluster() as cluster`` inside ``sim.loop.run`` starts the controller, and ``cluster.run(seconds)``
lets time pass.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.api.modelclaim import ClaimPhase, Instance, InstancePhase, ModelClaimStatus
from aibrix_operator.api.route import Route, RouteState
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, REPLICA_SETS, Key, Object, Resource
from aibrix_operator.modelclaim.world import World
from aibrix_operator.runtime_api import wire
from aibrix_operator.sim.known import Missed
from aibrix_operator.sim.leader_laws import LeaderLaws
from aibrix_operator.sim.operators import SimulatedOperator
from aibrix_operator.sim.order_laws import OrderLaws
from aibrix_operator.sim.room_laws import RoomLaws
from aibrix_operator.sim.runtimes import SimulatedRuntimes
from aibrix_operator.sim.sender import SENDER
from aibrix_operator.sim.sidecar import SimulatedEngine, SimulatedRuntime
from aibrix_operator.sim.store import Store, wall

NAMESPACE = "default"
POOL = "pool-a"


class LawBroken(AssertionError):
    """What the controller did and must never do, one sentence a line."""


class SimulatedCluster:
    """One namespace with a warm pool. Methods without ``async`` change the cluster as users and nodes do."""

    def __init__(self, operators: int = 1, *, is_strict: bool = False) -> None:
        """``operators``: processes of the operator. One alone leads without a Lease; several stand for election.
        ``is_strict``: who yields for whom is judged as well.
        """
        self.store = Store()
        self.runtimes = SimulatedRuntimes()
        self.operators: list[SimulatedOperator] = []
        """The processes that run."""
        laws = RoomLaws if is_strict else OrderLaws
        self.laws = laws(self.store, self._writing, self._clocks_are_off, self._missed)
        self.leader_laws = LeaderLaws(lambda: self.operators)
        self.store.changed, self.store.sent = self.laws.changed, self.leader_laws.sent
        self.store.refused = self._refused
        self.runtimes.called, self.runtimes.answered = self._called, self.laws.answered
        self.runtimes.done = self.leader_laws.done
        self._wanted = operators
        self._last: SimulatedOperator
        self._failed_passes = 0
        self._pods = 0

    def _writing(self) -> dict[str, tuple[Instance, ...]]:
        return {uid: instances for o in self.operators for uid, instances in o.world.writing.items()}

    def _clocks_are_off(self) -> bool:
        return any(o.clock_off_s for o in self.operators)

    def _missed(self) -> dict[str, Missed]:
        return {uid: missed for o in self.operators if o.is_leader for uid, missed in o.missed.items()}

    def _refused(self, resource: Resource, key: Key) -> None:
        sender = SENDER.get()
        for operator in self.operators:
            if operator is sender:
                operator.is_refused(resource, key)

    def _called(self, ip: str, request: wire.Request) -> None:
        self.leader_laws.sent()
        self.laws.called(ip, request)

    async def __aenter__(self) -> SimulatedCluster:
        for _ in range(self._wanted):
            self.start_controller()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for operator in list(self.operators):
            await self.stop_controller(operator)

    @property
    def world(self) -> World:
        """What the leader knows; while nobody leads, what one of the others does."""
        return self.leader.world

    @property
    def leader(self) -> SimulatedOperator:
        """The operator that leads; while nobody does, the one that was started last."""
        return next((o for o in self.operators if o.is_leader), self._last)

    def start_controller(self) -> SimulatedOperator:
        """Start a controller that knows nothing yet, as after a restart."""
        name = f"operator-{next(self.store.identities)}"
        started = SimulatedOperator(self.store, self.runtimes, name, NAMESPACE, stands_for_election=self._wanted > 1)
        self.operators.append(started)
        self._last = started
        started.start()
        return started

    async def stop_controller(self, which: SimulatedOperator | None = None) -> None:
        """Stop the leader, or another, as SIGTERM does."""
        operator = which or self.leader
        await operator.stop()
        self._forget(operator)

    async def kill_controller(self, which: SimulatedOperator) -> None:
        """End a controller at once."""
        await which.kill()
        self._forget(which)

    def _forget(self, operator: SimulatedOperator) -> None:
        self._failed_passes += operator.world.passes.failed_passes
        self.operators.remove(operator)

    async def run(self, seconds: float) -> None:
        """Let virtual time pass. Raises LawBroken when a law was broken or a pass failed meanwhile."""
        with contextlib.suppress(TimeoutError):  # the time is over, and no law was broken
            async with asyncio.timeout(seconds):
                await self.laws.first_break.wait()
        self.check()

    @staticmethod
    def later(seconds: float, do: Callable[[], None]) -> None:
        """Have something done after a while."""
        asyncio.get_running_loop().call_later(seconds, do)

    def check(self) -> None:
        """Raise LawBroken for what was done wrong so far."""
        broken = [*self.laws.broken, *self.leader_laws.broken]
        failed = self._failed_passes + sum(o.world.passes.failed_passes for o in self.operators)
        if failed:
            broken.append(f"{failed} pass(es) raised an exception, see the log")
        if broken:
            raise LawBroken("\n".join(broken))

    # --- what users and nodes do

    def add_pod(
        self,
        name: str,
        *usable_bytes: int,
        gpus: int | None = None,
        labels: Mapping[str, str] | None = None,
        ip: str | None = None,
        **runtime: Any,
    ) -> SimulatedRuntime:
        """A warm Pod that runs, with one GPU per usable size. The first brings the pool's Deployment along."""
        if (DEPLOYMENTS.plural, NAMESPACE, POOL) not in self.store.objects:
            self.set_policy(None)
        self._pods += 1
        ip = ip or f"10.0.0.{self._pods}"
        gpus = len(usable_bytes) if gpus is None else gpus
        pool = {names.POOL_LABEL: POOL, names.ENABLED_LABEL: "true"}
        limits = {"resources": {"limits": {names.GPU_RESOURCE: str(gpus)}}} if gpus else {}
        self.store.put(
            PODS,
            {
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "labels": {**pool, **(labels or {})},
                    "ownerReferences": [{"kind": "ReplicaSet", "controller": True, "uid": f"uid-of-{POOL}-rs"}],
                },
                "spec": {"containers": [{"name": "runtime", **limits}]},
                "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]},
            },
        )
        self.runtimes.by_ip[ip] = SimulatedRuntime(usable_bytes, **runtime)
        return self.runtimes.by_ip[ip]

    def ip_of(self, pod: str) -> str:
        """A Pod's address."""
        return str(self.store.objects[PODS.plural, NAMESPACE, pod]["status"]["podIP"])

    def next_pod_name(self) -> str:
        """A name that no Pod had before."""
        return f"pod-{self._pods}"

    def apply(self, name: str, footprint: str | None, floor: str | None, **spec: Any) -> None:
        """A user applies a claim."""
        self.store.put(MODEL_CLAIMS, self._claim_body(name, footprint, floor, **spec))

    def _claim_body(self, name: str, footprint: str | None, floor: str | None, **spec: Any) -> Object:
        body: Object = {
            "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1},
            "spec": {
                "modelName": f"model-of-{name}",
                "podSelector": {"matchLabels": {names.POOL_LABEL: POOL}},
                "artifactURL": f"huggingface://org/{name}",
                **spec,
            },
        }
        if footprint is not None:
            body["spec"]["perGPU"] = {"maximumFootprint": footprint, "kvFloor": floor}
        return body

    def seat(
        self,
        name: str,
        pod: str,
        footprint_bytes: int,
        floor_bytes: int,
        *,
        limit_bytes: int,
        record_bytes: int | None = None,
        **engine: Any,
    ) -> SimulatedEngine:
        """A claim that has long been served on the Pod, its engine held to ``limit_bytes``. ``engine``: its fields.

        The record is the limit unless said. For worlds in which a controller starts, or looks for the first time.
        """
        record = limit_bytes if record_bytes is None else record_bytes
        body = self._claim_body(name, str(footprint_bytes), str(floor_bytes))
        runtime = self.runtimes.by_ip[self.store.objects[PODS.plural, NAMESPACE, pod]["status"]["podIP"]]
        body["metadata"] |= {"finalizers": [names.CLAIM_FINALIZER], "uid": f"uid-of-{name}"}
        seated = runtime.seat(
            wire.ActivateRequest(
                model_name=body["spec"]["modelName"],
                artifact_url=body["spec"]["artifactURL"],
                ipc_name=f"kvc_{name}",
                claim_ref=wire.ClaimRef(namespace=NAMESPACE, name=name, uid=f"uid-of-{name}"),
            ),
            limit_bytes,
            **engine,
        )
        instance = Instance(pod=pod, port=seated.port, phase=InstancePhase.ACTIVE, kv_limit_bytes=record)
        status = ModelClaimStatus(phase=ClaimPhase.ACTIVE, ready_replicas=1, desired_replicas=1, instances=(instance,))
        body["status"] = status.model_dump(mode="json", by_alias=True)
        self.store.put(MODEL_CLAIMS, body)
        route = Route(model=body["spec"]["modelName"], port=seated.port, state=RouteState.ACTIVE).to_annotation()
        patch = {"metadata": {"annotations": {names.route_annotation(name): route}}}
        self.store.change(PODS, (NAMESPACE, pod), patch)
        return seated

    def set_policy(self, policy: str | None) -> None:
        """A user annotates the pool's Deployment, or takes the annotation off."""
        annotations = {} if policy is None else {names.POOL_POLICY_ANNOTATION: policy}
        identity = {"name": POOL, "namespace": NAMESPACE}
        self.store.put(DEPLOYMENTS, {"metadata": {**identity, "uid": f"uid-of-{POOL}", "annotations": annotations}})
        owner = {"kind": "Deployment", "controller": True, "uid": f"uid-of-{POOL}"}
        if (REPLICA_SETS.plural, NAMESPACE, POOL) not in self.store.objects:
            replica_set = {**identity, "uid": f"uid-of-{POOL}-rs", "ownerReferences": [owner]}
            self.store.put(REPLICA_SETS, {"metadata": replica_set})

    @property
    def policy(self) -> str:
        """The pool's policy as annotated; empty without one."""
        annotations = self.store.objects[DEPLOYMENTS.plural, NAMESPACE, POOL]["metadata"]["annotations"]
        return str(annotations.get(names.POOL_POLICY_ANNOTATION) or "")

    def request_wake(self, pod: str, claim: str, at: str = "") -> None:
        """The gateway asks for a sleeping engine."""
        annotation = {names.wake_annotation(claim): at or rfc3339(wall())}
        self.store.change(PODS, (NAMESPACE, pod), {"metadata": {"annotations": annotation}})

    def patch_claim(self, name: str, patch: Mapping[str, Any]) -> None:
        """A user patches a claim."""
        self.store.change(MODEL_CLAIMS, (NAMESPACE, name), patch)

    def delete_claim(self, name: str) -> None:
        """A user deletes a claim."""
        self.store.delete(MODEL_CLAIMS, (NAMESPACE, name))

    def set_pod_ready(self, name: str, is_ready: bool) -> None:
        """A Pod's readiness flips."""
        conditions = [{"type": "Ready", "status": str(is_ready)}]
        self.store.change(PODS, (NAMESPACE, name), {"status": {"conditions": conditions}})

    def label_pod(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Labels of a Pod change; None takes one away."""
        self.store.change(PODS, (NAMESPACE, name), {"metadata": {"labels": dict(labels)}})

    def delete_pod(self, name: str) -> None:
        """A Pod goes, and its runtime with it."""
        pod = self.store.objects[PODS.plural, NAMESPACE, name]
        self.runtimes.by_ip.pop(pod["status"]["podIP"], None)
        self.store.delete(PODS, (NAMESPACE, name))

    # --- what users see

    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return asyncio.get_running_loop().time()

    def status(self, name: str) -> ModelClaimStatus:
        """A claim's published status."""
        return ModelClaimStatus.model_validate(
            self.store.objects[MODEL_CLAIMS.plural, NAMESPACE, name].get("status", {})
        )

    def condition(self, name: str, type_: str) -> tuple[str, str, str]:
        """(status, reason, message) of a condition; empty texts when it is not there."""
        for condition in self.status(name).conditions:
            if condition.type == type_:
                return str(condition.status), condition.reason, condition.message
        return "", "", ""

    def annotations(self, pod: str) -> dict[str, str]:
        """A Pod's annotations."""
        found: dict[str, str] = self.store.objects[PODS.plural, NAMESPACE, pod]["metadata"].get("annotations", {})
        return found

    def exists(self, name: str) -> bool:
        """Whether the claim object is still there."""
        return (MODEL_CLAIMS.plural, NAMESPACE, name) in self.store.objects

    def events(self, reason: str = "", claim: str = "") -> list[tuple[str, str]]:
        """(reason, message) of the Events raised so far, oldest first."""
        return [
            (e["reason"], e["message"])
            for e in self.store.events
            if reason in ("", e["reason"]) and claim in ("", e["involvedObject"]["name"])
        ]

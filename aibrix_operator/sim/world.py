"""A whole cluster in memory under the virtual clock: the store, the runtimes, and the controller unchanged.

``async with SimulatedCluster() as cluster`` inside ``sim.loop.run`` starts the controller, and ``cluster.run(seconds)``
lets time pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.api.modelclaim import ClaimPhase, Instance, InstancePhase, ModelClaimStatus
from aibrix_operator.api.route import Route, RouteState
from aibrix_operator.cluster.events import EventRecorder
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, REPLICA_SETS, Object, key_of
from aibrix_operator.cluster.watch import Change
from aibrix_operator.modelclaim import reconcile
from aibrix_operator.modelclaim.parse import slim_deployment, slim_pod, slim_replica_set
from aibrix_operator.modelclaim.world import World
from aibrix_operator.runtime_api import wire
from aibrix_operator.sim.runtimes import SimulatedEngine, SimulatedRuntime, SimulatedRuntimes
from aibrix_operator.sim.sleep_laws import SleepLaws
from aibrix_operator.sim.store import Store, wall

NAMESPACE = "default"
POOL = "pool-a"


class LawBroken(AssertionError):
    """What the controller did and must never do, one sentence a line."""


class SimulatedCluster:
    """One namespace with a warm pool. Methods without ``async`` change the cluster as users and nodes do."""

    def __init__(self) -> None:
        self.store = Store()
        self.runtimes = SimulatedRuntimes()
        self.world: World
        self.laws = SleepLaws(self.store, lambda: self.world.writing)
        self.store.changed = self.laws.changed
        self.runtimes.called, self.runtimes.answered = self.laws.called, self.laws.answered
        self._pods = 0

    async def __aenter__(self) -> SimulatedCluster:
        self.start_controller()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_controller()

    def start_controller(self) -> None:
        """Start a controller that knows nothing yet, as after a restart."""
        recorder = EventRecorder(self.store, component="aibrix-operator", instance="sim", now=wall)
        world = World(self.store, self.runtimes, recorder, wall)
        pods: dict[tuple[str, str], Object] = {}
        world.use_pods(pods)
        replica_sets: dict[tuple[str, str], Object] = {}
        deployments: dict[tuple[str, str], Object] = {}
        world.replica_sets, world.deployments = replica_sets, deployments
        for (plural, namespace, name), obj in self.store.objects.items():
            if plural == MODEL_CLAIMS.plural:
                world.watched_claims[namespace, name] = obj
            elif plural == PODS.plural:
                pods[namespace, name] = slim_pod(dict(obj))
            elif plural == REPLICA_SETS.plural:
                replica_sets[namespace, name] = slim_replica_set(dict(obj))
            elif plural == DEPLOYMENTS.plural:
                deployments[namespace, name] = slim_deployment(dict(obj))
        reconcile.attach(world)
        self.world = world
        self.store._watchers.clear()
        self.store.watch(MODEL_CLAIMS, lambda change, old, new: reconcile.claim_changed(world, change, old, new))
        self.store.watch(PODS, lambda change, old, new: self._pod_changed(pods, change, old, new))
        self.store.watch(REPLICA_SETS, partial(self._pool_changed, replica_sets, slim_replica_set))
        self.store.watch(DEPLOYMENTS, partial(self._pool_changed, deployments, slim_deployment))
        world.is_synced = True
        recorder.start()
        world.passes.start()
        world.look(NAMESPACE)

    def _pod_changed(
        self, pods: dict[tuple[str, str], Object], change: Change, old: Object | None, new: Object | None
    ) -> None:
        slim_old, slim_new = (None if o is None else slim_pod(o) for o in (old, new))
        for slim in (slim_old, slim_new):
            if slim is not None:
                key = (slim["metadata"]["namespace"], slim["metadata"]["name"])
                pods.pop(key, None) if slim_new is None else pods.__setitem__(key, slim_new)
        reconcile.pod_changed(self.world, change, slim_old, slim_new)

    def _pool_changed(
        self,
        cache: dict[tuple[str, str], Object],
        slim: Callable[[Object], Object],
        change: Change,
        old: Object | None,
        new: Object | None,
    ) -> None:
        slim_old, slim_new = (None if o is None else slim(o) for o in (old, new))
        key = key_of(slim_new or slim_old or {})
        cache.pop(key, None) if slim_new is None else cache.__setitem__(key, slim_new)
        reconcile.pool_changed(self.world, change, slim_old, slim_new)

    async def stop_controller(self) -> None:
        """Stop it as SIGTERM does."""
        await self.world.passes.stop(1.0)
        await self.world.runtime_steps.stop(0.0)
        await self.world.api_steps.stop(0.0)
        await self.world.recorder.stop(1.0)
        for reader in self.world.readers.values():
            reader.stop()

    async def run(self, seconds: float) -> None:
        """Let virtual time pass. Raises LawBroken when a law was broken or a pass failed meanwhile."""
        await asyncio.sleep(seconds)
        self.check()

    def check(self) -> None:
        """Raise LawBroken for what was done wrong so far."""
        broken = list(self.laws.broken)
        if self.world.passes.failed_passes:
            broken.append(f"{self.world.passes.failed_passes} pass(es) raised an exception, see the log")
        if broken:
            raise LawBroken("\n".join(broken))

    # --- what users and nodes do

    def add_pod(
        self,
        name: str,
        *usable_bytes: int,
        gpus: int | None = None,
        labels: Mapping[str, str] | None = None,
        **runtime: Any,
    ) -> SimulatedRuntime:
        """A warm Pod that runs, with one GPU per usable size. The first brings the pool's Deployment along."""
        if (DEPLOYMENTS.plural, NAMESPACE, POOL) not in self.store.objects:
            self.set_policy(None)
        self._pods += 1
        ip = f"10.0.0.{self._pods}"
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

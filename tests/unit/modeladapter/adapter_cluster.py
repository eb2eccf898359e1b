"""ModelAdapters under the virtual clock: the real controller over an API server in memory and engines that forget.

The laws are watched as everything happens:

1. No route to a Pod that lacks the adapter: a Pod joins ``status.instances`` only while its engine has it, and one
   whose engine lost it is gone from there within one list, one load and one pass.
2. No more than ``replicas`` are told of, and an engine is unloaded only after the status has let go of its Pod.
3. ``Ready`` is true only while an EndpointSlice has every instance.
4. A deleted adapter leaves nothing: no engine that can be reached has it.
"""

import asyncio
import itertools

from aibrix_operator.api import names
from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.cluster.resource import ENDPOINT_SLICES, MODEL_ADAPTERS, PODS, key_of
from aibrix_operator.modeladapter.controller import ModelAdapterController
from aibrix_operator.modeladapter.engines import CALL_DEADLINE_S, Answer
from aibrix_operator.modeladapter.kind import ModelAdapters
from aibrix_operator.modeladapter.readers import INTERVAL_S
from aibrix_operator.modeladapter.snapshot import ListedModel, Verdict
from aibrix_operator.modeladapter.work import Work
from aibrix_operator.sim.keyed import KeyedCluster
from aibrix_operator.sim.store import now_s, wall

LATENCY_S = 0.02
LOST_FOR_S = INTERVAL_S + CALL_DEADLINE_S + 15.0
"""One list, one load that may hang, one pass and its writes while the API server answers late."""


class SimulatedEngine:
    """One Pod's engine."""

    def __init__(self):
        self.models = {"base": True}
        self.mode = "well"
        """``well``, ``refuses`` loads, ``silent`` (takes no connection), ``hangs`` (does it and never answers)."""
        self.born_at_s = now_s()
        self.tokens_per_s = 0.0
        """Of prompts; a request of a second for each."""
        self.metrics_error = ""
        self.lost_at_s = {}
        """Adapter → since when it lacks it, of those that it had."""

    def forget(self):
        for name in {**self.models, **self.lost_at_s}:
            if name != "base":
                self.lost_at_s[name] = now_s()
        self.models = {"base": True}


class SimulatedEngines:
    """``engines.Engines`` for all Pods, by UID."""

    def __init__(self):
        self.by_uid = {}
        self.lists = self.loads = self.unloads = self.metrics_read = 0
        self.unloaded = lambda uid, name: None

    async def models(self, target, access):
        self.lists += 1
        await asyncio.sleep(LATENCY_S)
        engine = self.by_uid.get(target.uid)
        if engine is None or engine.mode == "silent":
            return "connection refused"
        if engine.mode == "hangs":
            await asyncio.sleep(10)
            return "no answer in time"
        return {name: ListedModel(is_base) for name, is_base in engine.models.items()}

    async def work(self, target, access):
        self.metrics_read += 1
        await asyncio.sleep(LATENCY_S)
        engine = self.by_uid.get(target.uid)
        if engine is None or engine.mode != "well":
            return "connection refused"
        done = engine.tokens_per_s * (now_s() - engine.born_at_s)
        return engine.metrics_error or Work(now_s(), done, done, done, 0.0)

    async def load(self, target, access, name, source):
        self.loads += 1
        await asyncio.sleep(LATENCY_S)
        engine = self.by_uid.get(target.uid)
        if engine is None or engine.mode == "silent":
            return Answer(Verdict.NOT_SENT, "connection refused")
        if engine.mode == "refuses":
            return Answer(Verdict.REFUSED, "failed to load LoRA adapter (status 500): CUDA out of memory")
        engine.models[name] = False
        engine.lost_at_s.pop(name, None)
        if engine.mode == "hangs":
            await asyncio.sleep(CALL_DEADLINE_S)
            return Answer(Verdict.UNKNOWN, "did not answer within 30 s")
        return Answer(Verdict.DONE, "")

    async def unload(self, target, access, name):
        self.unloads += 1
        await asyncio.sleep(LATENCY_S)
        engine = self.by_uid.get(target.uid)
        if engine is None or engine.mode == "silent":
            return Answer(Verdict.NOT_SENT, "connection refused")
        self.unloaded(target.uid, name)
        engine.models.pop(name, None)
        if engine.mode == "hangs":
            await asyncio.sleep(CALL_DEADLINE_S)
            return Answer(Verdict.UNKNOWN, "did not answer within 30 s")
        return Answer(Verdict.DONE, "")


class AdapterCluster(KeyedCluster):
    """With Pods, engines and laws."""

    def __init__(self, operators=1, policy=Policy.LEAST_ADAPTERS):
        self.engines = SimulatedEngines()

        def host(hub):
            kind = ModelAdapters(hub, self.engines, policy, uses_sidecar=False)
            return [ModelAdapterController(kind, hub)]

        super().__init__(host, operators)
        self._numbers = itertools.count(1)
        self.watchers.append(self._check)
        self.engines.unloaded = self._check_unload

    # --- the world

    def pod(self, name, *, labels=None, ready=True):
        """A Pod, or its next state."""
        old = self.find(PODS, name)
        uid = old["metadata"]["uid"] if old else f"uid-{name}-{next(self._numbers)}"
        self.engines.by_uid.setdefault(uid, SimulatedEngine())
        since = rfc3339(wall())
        conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": since}]
        ip = old["status"]["podIP"] if old else f"10.0.0.{next(self._numbers)}"
        return self.store.put(
            PODS,
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": uid,
                    "labels": labels if labels is not None else {"app": "base"},
                },
                "spec": {"containers": [{"name": "engine"}]},
                "status": {"podIP": ip, "conditions": conditions},
            },
        )

    def engine(self, pod):
        return self.engines.by_uid[self.find(PODS, pod)["metadata"]["uid"]]

    def remove_pod(self, name):
        uid = self.find(PODS, name)["metadata"]["uid"]
        self.store.delete(PODS, ("default", name))
        del self.engines.by_uid[uid]

    def adapter(self, name="sql", *, replicas=None, namespace="default", url="huggingface://org/sql", labels=None):
        spec = {"podSelector": {"matchLabels": {"app": "base"}}, "artifactURL": url}
        if replicas is not None:
            spec["replicas"] = replicas
        metadata = {"name": name, "namespace": namespace, "generation": 1, "labels": labels or {}}
        return self.store.put(MODEL_ADAPTERS, {"metadata": metadata, "spec": spec})

    def status(self, name="sql", namespace="default"):
        return self.find(MODEL_ADAPTERS, name, namespace).get("status") or {}

    def is_ready(self, name="sql"):
        return any(c["type"] == "Ready" and c["status"] == "True" for c in self.status(name).get("conditions") or ())

    def holders(self, name="sql"):
        """Pods whose engines have the adapter."""
        return {
            key_of(pod)[1] for pod in self.store.of(PODS) if name in self.engines.by_uid[pod["metadata"]["uid"]].models
        }

    def call_later(self, seconds, what):
        """Have ``what`` done in a while."""
        asyncio.get_running_loop().call_later(seconds, what)

    def later(self, work):
        """Have a coroutine run beside."""
        return asyncio.get_running_loop().create_task(work)

    # --- the laws

    def _check(self, verb, resource, old, new):
        if resource == MODEL_ADAPTERS and new is not None and "deletionTimestamp" not in new["metadata"]:
            self._check_status(old, new)
        if resource == MODEL_ADAPTERS and new is None:
            self._check_gone(old)

    def _check_status(self, old, new):
        before = set((((old or {}).get("status")) or {}).get("instances") or ())
        status = new.get("status") or {}
        instances = status.get("instances") or []
        name = new["metadata"]["name"]
        replicas = new["spec"].get("replicas")
        told_now = old is None or status != (old.get("status") or {})
        if told_now and replicas is not None and len(instances) > replicas:
            self.broken.append(f"{name} is told to be on {instances}, and {replicas} are wanted")
        for pod_name in set(instances) - before:
            pod = self.find(PODS, pod_name)
            engine = self.engines.by_uid.get(pod["metadata"]["uid"]) if pod is not None else None
            if engine is None or name in engine.models or name in engine.lost_at_s:
                continue
            if now_s() - engine.born_at_s > LOST_FOR_S:
                self.broken.append(f"{pod_name} is told to have {name}, and its engine never had")
            # Its namesake had, and no watch has told yet that the Pod is another.
            engine.lost_at_s[name] = now_s()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
        if told_now and ready:
            self._check_slice(new, instances)

    def _check_slice(self, adapter, instances):
        listed = {
            address
            for body in self.store.of(ENDPOINT_SLICES)
            if body["metadata"]["labels"].get(names.ADAPTER_NAME_LABEL) == adapter["metadata"]["name"]
            for endpoint in body["endpoints"]
            for address in endpoint["addresses"]
        }
        for pod_name in instances:
            pod = self.find(PODS, pod_name)
            if pod is not None and pod["status"]["podIP"] not in listed:
                self.broken.append(f"{adapter['metadata']['name']} is ready, and no slice has {pod_name}")

    def _check_unload(self, uid, name):
        pod = next((p for p in self.store.of(PODS) if p["metadata"]["uid"] == uid), None)
        adapter = self.find(MODEL_ADAPTERS, name)
        if pod is None or adapter is None or "deletionTimestamp" in adapter["metadata"]:
            return
        if key_of(pod)[1] in ((adapter.get("status") or {}).get("instances") or ()):
            self.broken.append(f"{name} is unloaded from {key_of(pod)[1]}, which the status tells of")

    def _check_gone(self, adapter):
        name = adapter["metadata"]["name"]
        if names.ADAPTER_FINALIZER in (adapter["metadata"].get("finalizers") or ()):
            for pod_name in self.holders(name):
                if self.engine(pod_name).mode == "well":
                    self.broken.append(f"{name} is gone, and {pod_name} has it")

    def check_lost(self):
        """Engines that lost an adapter long ago are told of no more."""
        for adapter in self.store.of(MODEL_ADAPTERS):
            name = adapter["metadata"]["name"]
            for pod_name in (adapter.get("status") or {}).get("instances") or ():
                pod = self.find(PODS, pod_name)
                engine = self.engines.by_uid.get(pod["metadata"]["uid"]) if pod is not None else None
                lost_at_s = engine.lost_at_s.get(name) if engine is not None and name not in engine.models else None
                is_told = engine is not None and engine.mode == "well"
                if lost_at_s is not None and is_told and now_s() - lost_at_s > LOST_FOR_S:
                    self.broken.append(f"{pod_name} lost {name} {now_s() - lost_at_s:.0f} s ago and is told to have it")

"""One warm pool in a namespace of its own, and the words in which the stories are told: claims, engines, routes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.sandbox.pod_folder import PodFolder
from aibrix_operator.sandbox.processes import ProcessId
from aibrix_operator.sandbox.state import Sandbox
from e2e.api import ApiServer, Refused, eventually

GIB = 1 << 30
SMALL_CARD, LARGE_CARD = "24Gi", "80Gi"
CARD = 24 * GIB
"""Usable bytes of the small card, which the stories are told on."""
AWAKE, ASLEEP = 6 * GIB, 300 << 20
"""What a stand-in engine holds beside its KV."""
CLAIMS = f"/apis/{names.MODEL_GROUP}/{names.MODEL_VERSION}/namespaces/{{}}/modelclaims"

QWEN3, QWEN25 = "qwen3-0-6b", "qwen25-0-5b"
SAMPLES = {QWEN3: "qwen3-0.6b", QWEN25: "qwen2.5-0.5b"}
"""Claim → model of the two samples."""


@dataclass(frozen=True)
class Answer:
    """What a sidecar or an engine answered."""

    status: int
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


def ask(address: str, port: int, method: str, path: str, body: Any = None, timeout_s: float = 30.0) -> Answer:
    """One HTTP exchange with a process of a Pod."""
    connection = http.client.HTTPConnection(address, port, timeout=timeout_s)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode())
    finally:
        connection.close()


def conditions(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Condition type → condition."""
    return {c["type"]: c for c in claim.get("status", {}).get("conditions", ())}


def reason(claim: Mapping[str, Any], type_: str) -> str:
    """The reason of one condition; empty when it was never set."""
    return conditions(claim).get(type_, {}).get("reason", "")


def message(claim: Mapping[str, Any], type_: str) -> str:
    return conditions(claim).get(type_, {}).get("message", "")


def phase(claim: Mapping[str, Any]) -> str:
    return claim.get("status", {}).get("phase", "")


def record(claim: Mapping[str, Any]) -> int:
    """The KV limit recorded for the claim's one instance."""
    (instance,) = claim["status"]["instances"]
    return instance["kvLimitBytes"]


def claim_body(
    name: str, pool: str, model: str | None = None, footprint: Any = "6Gi", floor: Any = "1Gi", **spec: Any
) -> dict[str, Any]:
    """A ModelClaim for ``pool``; ``footprint`` None leaves ``perGPU`` out, and ``spec`` replaces whole fields."""
    per_gpu = {} if footprint is None else {"perGPU": {"maximumFootprint": footprint, "kvFloor": floor}}
    return {
        "apiVersion": f"{names.MODEL_GROUP}/{names.MODEL_VERSION}",
        "kind": "ModelClaim",
        "metadata": {"name": name},
        "spec": {
            **({} if model is None else {"modelName": model}),
            "podSelector": {"matchLabels": {names.POOL_LABEL: pool}},
            "artifactURL": f"huggingface://example/{name}",
            "engineConfig": {"args": {"--max-model-len": "2048"}},
            **per_gpu,
            **spec,
        },
    }


@dataclass(frozen=True)
class WarmPod:
    """One Pod of a pool, as it was when it was looked up."""

    name: str
    uid: str
    address: str
    folder: PodFolder

    @property
    def sidecar(self) -> ProcessId:
        process = self.folder.sidecar
        assert process is not None
        return process

    def get(self, path: str) -> Answer:
        return ask(self.address, names.RUNTIME_PORT, "GET", path)

    def post(self, action: str, **body: Any) -> Answer:
        """One changing call, as anybody in the cluster can make it."""
        return ask(self.address, names.RUNTIME_PORT, "POST", f"/v1/runtime/models/{action}", body)

    def snapshot(self) -> Any:
        answer = self.get("/v1/runtime/snapshot")
        assert answer.status == 200, answer.text
        return answer.body

    def engines(self) -> dict[str, Any]:
        """Model → engine as the sidecar sees it."""
        return {engine["model_name"]: engine for engine in self.snapshot()["models"]}

    def pid_of(self, model: str) -> int:
        """The engine's process by the sidecar's registry."""
        entries = json.loads(self.folder.registry.read_text())["engines"]
        return next(entry["pid"] for entry in entries if entry["model_name"] == model)

    def chat(self, port: int, model: str, max_tokens: int = 8, timeout_s: float = 60.0) -> Answer:
        """A question to an engine, as a gateway would forward it."""
        body = {"model": model, "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": max_tokens}
        return ask(self.address, port, "POST", "/v1/chat/completions", body | {"ignore_eos": True}, timeout_s)


@dataclass
class Pool:
    """A warm pool's Deployment, and the claims that were applied for it."""

    sandbox: Sandbox
    api: ApiServer
    namespace: str
    name: str
    applied: set[str] = field(default_factory=set)

    # --- claims

    def apply(self, name: str, model: str | None = None, **spec: Any) -> dict[str, Any]:
        """Create a claim for this pool; Refused when the API server says no."""
        made: dict[str, Any] = self.api.create(self._claims, claim_body(name, self.name, model, **spec))
        self.applied.add(name)
        return made

    def apply_samples(self) -> None:
        """The two samples, unless they are there."""
        present = {claim["metadata"]["name"] for claim in self.api.get(self._claims)["items"]}
        for name, model in SAMPLES.items():
            if name not in present:
                self.apply(name, model)

    def claim(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"{self._claims}/{name}")
        return found

    def change(self, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A merge patch of the spec."""
        changed: dict[str, Any] = self.api.patch(f"{self._claims}/{name}", {"spec": spec})
        return changed

    def delete(self, *claims: str) -> None:
        for name in claims:
            self.api.delete(f"{self._claims}/{name}")

    def is_gone(self, name: str) -> bool:
        return not self.api.exists(f"{self._claims}/{name}")

    def wait(self, name: str, what: str, condition: Callable[[dict[str, Any]], Any], within_s: float = 30.0) -> Any:
        """The claim, as soon as ``condition`` holds for it."""

        def look() -> Any:
            claim = self.claim(name)
            return claim if condition(claim) else None

        try:
            return eventually(f"{name} {what}", look, within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; its status: {json.dumps(self.claim(name).get('status'))}") from None

    def wait_active(self, *claims: str, within_s: float = 30.0) -> None:
        for name in claims:
            self.wait(name, "is Active", lambda claim: phase(claim) == "Active", within_s)
            # The route is the Pod's, and written beside the status.
            eventually(f"{name} is routed", partial(self._is_routed, name), 10.0)

    def _is_routed(self, name: str) -> bool:
        return self.route(name).get("state") == "active"

    def wait_unplaced(self, name: str, why: str, within_s: float = 30.0) -> dict[str, Any]:
        """The claim once its Scheduled condition gives ``why``."""
        claim: dict[str, Any] = self.wait(name, f"says {why}", lambda c: reason(c, "Scheduled") == why, within_s)
        return claim

    def events(self, claim: str, why: str = "") -> list[dict[str, Any]]:
        """The claim's Events, oldest first; only those of reason ``why`` when it is given."""
        found = self.api.get(f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.name%3D{claim}")
        events = [event for event in found["items"] if why in ("", event["reason"])]
        return sorted(events, key=lambda event: event["firstTimestamp"])

    def told(self, claim: str, why: str) -> int:
        """How often the claim was told ``why``."""
        return sum(event.get("count", 1) for event in self.events(claim, why))

    def wait_told(self, claim: str, why: str, times: int = 1) -> None:
        """Until the claim was told ``why`` that often in all. AssertionError lists what it was told instead."""
        try:
            eventually(f"{claim} is told {why} {times} times", lambda: self.told(claim, why) == times, 10.0)
        except AssertionError as error:
            heard = [(e["reason"], e["message"], e.get("count", 1)) for e in self.events(claim)]
            raise AssertionError(f"{error}; it heard {heard}") from None

    def clean_up(self, *claims: str, within_s: float = 60.0) -> None:
        """Delete these claims, by default all that were applied, and wait until nothing of them is left."""
        going = self.applied & set(claims) if claims else set(self.applied)
        present = {claim["metadata"]["name"]: claim for claim in self.api.get(self._claims)["items"]}
        started = [c for name, c in present.items() if name in going and c.get("status", {}).get("instances")]
        models = {claim["spec"].get("modelName", claim["metadata"]["name"]) for claim in started}
        self.delete(*going)
        for name in going:
            eventually(f"{name} is gone", partial(self.is_gone, name), within_s)
        self.applied -= going
        if models:
            eventually(f"{models} are gone", lambda: not models & self._served(), within_s)

    def set_policy(self, **lifecycle: Any) -> None:
        """The pool's policy; without any figure it has none."""
        text = json.dumps({"lifecycle": lifecycle}) if lifecycle else None
        for made in self.api.get(self._deployments)["items"]:
            path = f"{self._deployments}/{made['metadata']['name']}"
            self.api.patch(path, {"metadata": {"annotations": {names.POOL_POLICY_ANNOTATION: text}}})

    def wait_asleep(self, claim: str, within_s: float = 60.0) -> None:
        """Until the claim sleeps, by its route too."""
        self.wait(claim, "is Sleeping", lambda found: phase(found) == "Sleeping", within_s)
        eventually(f"{claim} is on no route", lambda: self.route(claim).get("state") == "sleeping", 10.0)

    def remove(self) -> None:
        """Delete claims and Pods, in the order that users are told to. Nothing is waited for: no name comes twice."""
        self.delete(*self.applied)
        for made in self.api.get(self._deployments)["items"]:
            if made["metadata"]["labels"].get(names.POOL_LABEL) == self.name:
                self.api.delete(f"{self._deployments}/{made['metadata']['name']}?propagationPolicy=Background")

    def _served(self) -> set[str]:
        return {model for pod in self.pods() for model in pod.engines()}

    def start_chat(self, claim: str, tokens: int) -> Future[Answer]:
        """A question to the claim's engine whose answer has ``tokens`` tokens; it is at work when this returns."""
        route, pod, answer = self.route(claim), self.pod, Future[Answer]()

        def run() -> None:
            try:
                answer.set_result(pod.chat(route["port"], route["model"], tokens, timeout_s=300.0))
            except (OSError, http.client.HTTPException) as error:
                answer.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        eventually("the engine is at work", lambda: pod.engines()[route["model"]]["requests_running"] == 1)
        return answer

    # --- Pods

    def pods(self) -> list[WarmPod]:
        """The Pods that have a sidecar, by name."""
        return sorted(map(self._warm_pod, self._pod_bodies()), key=lambda pod: pod.name)

    @property
    def pod(self) -> WarmPod:
        (pod,) = self.pods()
        return pod

    def wait_ready(self, replicas: int, within_s: float = 90.0) -> None:
        def ready() -> bool:
            found = self._pod_bodies()
            return len(found) == replicas and all(_is_ready(body) for body in found)

        eventually(f"{replicas} Pods of {self.name} are ready", ready, within_s)

    def join(self, card: str) -> WarmPod:
        """One more Pod of the pool, with a card of another kind; ready when this returns."""
        before = {pod.uid for pod in self.pods()}
        self.api.create(self._deployments, deployment(self.name, card=card))
        self.wait_ready(len(before) + 1)
        (new,) = (pod for pod in self.pods() if pod.uid not in before)
        return new

    def annotations(self) -> dict[str, str]:
        """All of the Pods' route and wake annotations."""
        prefixes = (names.ROUTE_PREFIX, names.WAKE_PREFIX)
        return {
            key: value
            for body in self._pod_bodies()
            for key, value in body["metadata"].get("annotations", {}).items()
            if key.startswith(prefixes)
        }

    def route(self, claim: str) -> dict[str, Any]:
        """The claim's route; empty while it has none."""
        return json.loads(self.annotations().get(names.route_annotation(claim), "{}"))

    def routes_of(self, claim: str) -> Iterator[dict[str, Any]]:
        """Each route that the claim has from now on, also one that is there for a moment only."""
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={names.POOL_LABEL}%3D{self.name}"
        version = self.api.get(path)["metadata"]["resourceVersion"]
        key = names.route_annotation(claim)
        return self._routes_after(self.annotations().get(key), key, self.api.watch(path, version))

    def _routes_after(self, before: str | None, key: str, pods: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for body in pods:
            text = body["metadata"].get("annotations", {}).get(key)
            if text != before:
                before = text
                yield json.loads(text or "{}")

    def _pod_bodies(self) -> list[dict[str, Any]]:
        selector = f"labelSelector={names.POOL_LABEL}%3D{self.name}"
        found = self.api.get(f"/api/v1/namespaces/{self.namespace}/pods?{selector}")["items"]
        return [body for body in found if "deletionTimestamp" not in body["metadata"]]

    def _warm_pod(self, body: Mapping[str, Any]) -> WarmPod:
        metadata = body["metadata"]
        folder = PodFolder(self.sandbox.pods / metadata["uid"])
        return WarmPod(metadata["name"], metadata["uid"], body["status"].get("podIP", ""), folder)

    @property
    def _claims(self) -> str:
        return CLAIMS.format(self.namespace)

    @property
    def _deployments(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments"


@dataclass
class EndlessAnswer:
    """A request that does not end by itself, to a claim that was deleted while it ran."""

    pool: Pool
    claim: str
    request: Future[Answer]
    deleted_s: float
    """By ``time.monotonic``, as ``ended_s``."""
    ended_s: float = 0.0

    @classmethod
    def start(cls, pool: Pool, claim: str, tokens: int) -> EndlessAnswer:
        pool.apply(claim)
        pool.wait_active(claim)
        made = cls(pool, claim, pool.start_chat(claim, tokens), time.monotonic())
        made.request.add_done_callback(lambda _: setattr(made, "ended_s", time.monotonic()))
        pool.delete(claim)
        return made


def _is_ready(body: Mapping[str, Any]) -> bool:
    found = body.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found)


def deployment(
    name: str, replicas: int = 1, gpus: int = 1, card: str = SMALL_CARD, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A pool's Deployment on cards of one kind; ``environment`` says which sidecar it runs, and how."""
    labels = {names.POOL_LABEL: name, names.ENABLED_LABEL: "true"}
    container = {
        "name": "runtime",
        "image": "aibrix/runtime:sandbox",
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        "resources": {"limits": {names.GPU_RESOURCE: str(gpus)}},
    }
    pod = {
        "nodeSelector": {"nvidia.com/gpu.product": card},
        "terminationGracePeriodSeconds": 2,
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{name}-{card.lower()}", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels | {"card": card}},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels | {"card": card}}, "spec": pod},
        },
    }


def make_pool(sandbox: Sandbox, api: ApiServer, name: str, *, namespace: str, replicas: int = 1, **shape: Any) -> Pool:
    """Create namespace and Deployment; the Pods are not waited for."""
    try:
        api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    except Refused as error:
        if error.status != 409:
            raise
    api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(name, replicas, **shape))
    return Pool(sandbox, api, namespace, name)


def kill(pid: int) -> None:
    """What a crash does to one process."""
    os.kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

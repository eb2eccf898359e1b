"""StormServices in virtual time: the controllers unchanged, and a kubelet and scheduler of our own."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from typing import Any

from virtual_story import as_test

from aibrix_operator.api import orchestration
from aibrix_operator.cluster.resource import PODS, Object, Resource, key_of
from aibrix_operator.sim.keyed import KeyedCluster
from aibrix_operator.sim.store import now_s
from aibrix_operator.stormservice import kinds
from aibrix_operator.stormservice.resources import PODSETS, REVISIONS, ROLESETS, SERVICES, STORMSERVICES

__all__ = ["PODS", "PODSETS", "REVISIONS", "ROLESETS", "SERVICES", "STORMSERVICES"]

HELD = "kubelet.test/running"
"""Holds a Pod until its containers have ended, as a grace period does."""


class Kubelet:
    """Runs the Pods of a store: scheduled, ready after a while, gone after a while."""

    def __init__(self, cluster: KeyedCluster, *, ready_s: float = 2.0, grace_s: float = 1.0) -> None:
        self.cluster = cluster
        self.ready_s = ready_s
        self.grace_s = grace_s
        self.pull_s = 1.0
        """Until a changed image runs."""
        self.is_good: Callable[[Object], bool] = lambda pod: True
        """Whether a Pod ever becomes ready."""
        self.nodes = ["n1", "n2", "n3"]
        self.ids: Callable[[str], str] = lambda image: f"sha256:{image}"
        """Image → the ID that the runtime reports."""
        self._placed = 0
        cluster.watchers.append(self._changed)

    def _changed(self, verb: str, resource: Resource, old: Object | None, new: Object | None) -> None:
        if resource != PODS or new is None:
            return
        clock = asyncio.get_running_loop()
        if old is None:
            clock.call_soon(self._admit, key_of(new), new["metadata"]["uid"])
        elif "deletionTimestamp" in new["metadata"] and "deletionTimestamp" not in old["metadata"]:
            clock.call_later(self.grace_s, self._end, key_of(new), new["metadata"]["uid"])
        elif old.get("spec", {}).get("containers") != new["spec"].get("containers") and old["spec"].get("nodeName"):
            clock.call_later(self.pull_s, self._report, key_of(new), new["metadata"]["uid"])

    def _pod(self, key: tuple[str, str], uid: str) -> Object | None:
        pod = self.cluster.store.objects.get(("pods", *key))
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def _admit(self, key: tuple[str, str], uid: str) -> None:
        pod = self._pod(key, uid)
        if pod is None:
            return
        self._placed += 1
        node = self._preferred(pod) or self.nodes[self._placed % len(self.nodes)]
        change = {"metadata": {"finalizers": [HELD]}, "spec": {"nodeName": node}, "status": {"phase": "Pending"}}
        self.cluster.store.change(PODS, key, change)
        asyncio.get_running_loop().call_later(self.ready_s, self._report, key, uid)

    def _preferred(self, pod: Object) -> str:
        terms = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        for term in terms.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
            for node in term["preference"]["matchExpressions"][0]["values"]:
                if node in self.nodes:
                    return node
        return ""

    def _report(self, key: tuple[str, str], uid: str) -> None:
        pod = self._pod(key, uid)
        if pod is None or "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") == "Failed":
            return
        self.set_ready(pod, self.is_good(pod))

    def set_ready(self, pod: Object, ready: bool) -> None:
        """Say what the containers are doing."""
        statuses = [
            {"name": c["name"], "ready": ready, "image": c["image"], "imageID": self.ids(c["image"]), "restartCount": 0}
            for c in pod["spec"]["containers"]
        ]
        others = [c for c in pod.get("status", {}).get("conditions", ()) if c["type"] == orchestration.IN_PLACE_GATE]
        gated = [c["status"] for c in others] if pod["spec"].get("readinessGates") else ["True"]
        conditions = [
            {"type": "ContainersReady", "status": str(ready)},
            {"type": "Ready", "status": str(ready and gated == ["True"])},
            *others,
        ]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}
        self.cluster.store.change(PODS, key_of(pod), {"status": status})

    def _end(self, key: tuple[str, str], uid: str) -> None:
        pod = self._pod(key, uid)
        if pod is not None:
            kept = [f for f in pod["metadata"].get("finalizers", ()) if f != HELD]
            self.cluster.store.change(PODS, key, {"metadata": {"finalizers": kept}})
            self.cluster.store.delete(PODS, key)

    def fail(self, pod: Object) -> None:
        """The Pod ends by itself."""
        conditions = [{"type": "Ready", "status": "False"}]
        self.cluster.store.change(PODS, key_of(pod), {"status": {"phase": "Failed", "conditions": conditions}})


class StormCluster(KeyedCluster):
    """A cluster of the three kinds, with a kubelet."""

    def __init__(self, operators: int = 1, **kubelet: Any) -> None:
        super().__init__(kinds.controllers, operators)
        self.kubelet = Kubelet(self, **kubelet)

    def apply(self, body: dict[str, Any], resource: Resource = STORMSERVICES) -> None:
        """A user creates an object."""
        metadata = {"namespace": "default", "generation": 1, **body["metadata"]}
        self.store.put(resource, {**body, "metadata": metadata})

    def edit(self, name: str, **spec: Any) -> None:
        """A user changes a StormService's spec."""
        self.store.change(STORMSERVICES, ("default", name), {"spec": spec})

    def edit_role(self, name: str, role: str, change: Callable[[dict[str, Any]], None]) -> None:
        """A user changes one role of the template."""
        spec = copy.deepcopy(self.find(STORMSERVICES, name)["spec"])
        change(next(r for r in spec["template"]["spec"]["roles"] if r["name"] == role))
        self.edit(name, template=spec["template"])

    def set_images(self, name: str, image: str) -> None:
        """The image of every role."""
        spec = copy.deepcopy(self.find(STORMSERVICES, name)["spec"])
        for changed in spec["template"]["spec"]["roles"]:
            changed["template"]["spec"]["containers"][0]["image"] = image
        self.edit(name, template=spec["template"])

    def set_image(self, name: str, role: str, image: str) -> None:
        self.edit_role(name, role, lambda r: r["template"]["spec"]["containers"][0].update(image=image))

    def status(self, name: str = "pd") -> dict[str, Any]:
        return (self.find(STORMSERVICES, name) or {}).get("status", {})

    def condition(self, type_: str, name: str = "pd") -> dict[str, Any] | None:
        return next((c for c in self.status(name).get("conditions", ()) if c["type"] == type_), None)

    def pods(self, role: str = "", **labels: str) -> list[Object]:
        """Pods by name, of one role or of all."""
        wanted = labels | ({orchestration.ROLE_LABEL: role} if role else {})
        found = [p for p in self.store.of(PODS) if wanted.items() <= p["metadata"].get("labels", {}).items()]
        return sorted(found, key=lambda p: p["metadata"]["name"])

    def uids(self, role: str = "") -> set[str]:
        return {p["metadata"]["uid"] for p in self.pods(role)}

    def rolesets(self) -> list[Object]:
        return sorted(self.store.of(ROLESETS), key=lambda r: r["metadata"]["name"])

    def is_ready(self, name: str = "pd") -> bool:
        status = self.status(name)
        return self.condition("Ready", name) is not None and status.get("observedGeneration") == self.find(
            STORMSERVICES, name
        )["metadata"].get("generation")

    async def until(self, holds: Callable[[], Any], within_s: float = 120.0, what: str = "") -> None:
        """Let time pass until ``holds``."""
        end_s = now_s() + within_s
        while not holds():
            assert now_s() < end_s, what or f"not within {within_s} s: {self.status()}"
            await self.run(0.25)

    async def rest(self, seconds: float = 40.0) -> None:
        """Nothing is written for a while."""
        await self.run(2)
        before = len(self.store.writes)
        await self.run(seconds)
        assert self.store.writes[before:] == []


def role(name: str = "worker", replicas: int | None = 1, *, image: str = "engine:1", **more: Any) -> dict[str, Any]:
    """A role of one container; a field that is given as None is left out."""
    template = {"metadata": {"labels": {"app": "pd"}}, "spec": {"containers": [{"name": "engine", "image": image}]}}
    whole = {"name": name, "replicas": replicas, "template": template, **more}
    return {field: value for field, value in whole.items() if value is not None}


def storm(name: str, *roles: dict[str, Any], roleset: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A StormService of ``roles``; ``roleset`` is merged into the RoleSets' spec, ``spec`` into its own."""
    return {
        "apiVersion": orchestration.API_VERSION,
        "kind": "StormService",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "pd"}},
            "template": {
                "metadata": {"labels": {"app": "pd"}},
                "spec": {"roles": list(roles) or [role()], **(roleset or {})},
            },
            **spec,
        },
    }


def played(operators: int = 1, **kubelet: Any):
    """Make ``async def story(cluster)`` a test in virtual time; an error that is logged fails it."""
    return lambda story: as_test(story, lambda: _play(story, operators, kubelet))


async def _play(story, operators, kubelet):
    async with StormCluster(operators, **kubelet) as cluster:
        await story(cluster)


def chance(seed: int) -> random.Random:
    """The dice of one schedule."""
    return random.Random(seed)

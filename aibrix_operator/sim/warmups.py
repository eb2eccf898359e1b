"""Nodes, Jobs and what ends them, for schedules of ModelWarmups; and the laws that every one must keep."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from aibrix_operator.api.modelwarmup import (
    ENABLED_LABEL,
    NODE_ANNOTATION,
    NODE_POOL_LABEL,
    Policies,
    WarmupPhase,
)
from aibrix_operator.cluster.resource import JOBS, MODEL_WARMUPS, NAMESPACES, NODES, Key, Object, Resource, key_of
from aibrix_operator.controller.cache import owner_uid
from aibrix_operator.modelwarmup.observe import phase_of
from aibrix_operator.modelwarmup.targets import is_authorized
from aibrix_operator.sim.keyed import KeyedCluster
from aibrix_operator.sim.store import now_s

NAMESPACE, POOL = "serving", "lat"
OPEN = {ENABLED_LABEL: "true", NODE_POOL_LABEL: POOL}
GRACE_S = 60.0
"""A node may have lost its label so lately that the operator need not know: its watch may lag that much."""


class WarmupWorld:
    """The job and TTL controllers and all kubelets in one, and whoever keeps nodes."""

    def __init__(self, cluster: KeyedCluster, seed: int) -> None:
        self.cluster = cluster
        self.fails: Callable[[str], bool] = lambda node: False
        """Whether a Job on this node fails."""
        self.lasts_s: Callable[[], float] = lambda: self._chance.uniform(1, 30)
        self.closed_at_s: dict[str, float] = {}
        """Node → since when no warmup may use it."""
        self._chance = random.Random(f"{seed}/jobs")
        self._ended: set[str] = set()
        self._cut: set[str] = set()
        cluster.watchers += [self._job_changed, self._obey_laws]
        self._put(NAMESPACES, {"name": NAMESPACE, "labels": {NODE_POOL_LABEL: POOL}})

    def _put(self, resource: Resource, metadata: Mapping[str, Any], **more: Any) -> Object:
        return self.cluster.store.put(resource, {"metadata": metadata, **more})

    # --- nodes and users

    def node(self, name: str, **labels: str | None) -> None:
        """Add a node that is open to warmups, or change its labels."""
        kept = {key: value for key, value in {**OPEN, **labels}.items() if value is not None}
        self._put(NODES, {"name": name, "labels": kept})
        if is_authorized(kept, POOL):
            self.closed_at_s.pop(name, None)
        else:
            self.closed_at_s.setdefault(name, now_s())

    def lose_node(self, name: str) -> None:
        """A node goes."""
        if (NODES.plural, "", name) in self.cluster.store.objects:
            self.cluster.store.delete(NODES, ("", name))
            self.closed_at_s.setdefault(name, now_s())

    def apply(self, name: str, *nodes: str, **policies: int) -> None:
        """A user applies a warmup of these nodes; without one, of all with ``OPEN``'s labels."""
        target: Object = {"nodes": {"names": list(nodes)}} if nodes else {"nodeSelector": {"matchLabels": OPEN}}
        images = {"images": [{"image": "busybox", "command": ["true"]}]}
        self._put(
            MODEL_WARMUPS,
            {"name": name, "namespace": NAMESPACE, "generation": 1},
            spec={"targets": [target], "imagePreload": images, "policies": policies},
        )

    def status(self, name: str) -> Object:
        """A warmup's published status."""
        found: Object = self.cluster.store.objects[MODEL_WARMUPS.plural, NAMESPACE, name].get("status", {})
        return found

    def jobs(self, warmup: str | None = None) -> list[Object]:
        """All Jobs, or those of one warmup."""
        uid = None if warmup is None else self.cluster.find(MODEL_WARMUPS, warmup, NAMESPACE)
        return [
            job
            for job in self.cluster.store.of(JOBS)
            if warmup is None or (uid is not None and owner_uid(job) == uid["metadata"]["uid"])
        ]

    # --- the controllers of the cluster

    def _job_changed(self, verb: str, resource: Resource, old: Object | None, new: Object | None) -> None:
        if resource != JOBS or new is None:
            return
        if old is None:
            self._later(self.lasts_s(), lambda: self._end(key_of(new), new["metadata"]["uid"]))
        ttl_s = new["spec"].get("ttlSecondsAfterFinished")
        if ttl_s is not None and is_finished(new) and new["metadata"]["uid"] not in self._cut:
            self._cut.add(new["metadata"]["uid"])
            self._later(float(ttl_s), lambda: self.remove_job(key_of(new), new["metadata"]["uid"]))

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, do)

    def _end(self, key: Key, uid: str) -> None:
        job = self.cluster.store.objects.get((JOBS.plural, *key))
        if job is None or job["metadata"]["uid"] != uid or is_finished(job):
            return
        if self.fails(job["metadata"]["annotations"][NODE_ANNOTATION]):
            condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "no more"}
        else:
            condition = {"type": "Complete", "status": "True"}
        self.cluster.store.change(JOBS, key, {"status": {"conditions": [condition]}})

    def remove_job(self, key: Key, uid: str) -> None:
        """The TTL controller, or somebody's hand, deletes a Job."""
        job = self.cluster.store.objects.get((JOBS.plural, *key))
        if job is not None and job["metadata"]["uid"] == uid:
            self.cluster.store.delete(JOBS, key)

    # --- the laws

    def _obey_laws(self, verb: str, resource: Resource, old: Object | None, new: Object | None) -> None:
        """1. Never more unfinished Jobs than the parallelism. 2. No Job on a node that may not be used. 3. Nothing is
        created, and no status changes, after a terminal phase. 4. No Job has a time to live before that."""
        if resource == JOBS and old is None and new is not None:
            self._job_is_new(new)
        if resource == JOBS and new is not None and new["spec"].get("ttlSecondsAfterFinished") is not None:
            owner = self._owner(new)
            if owner is not None and not _is_over(owner):
                self._broken(f"{new['metadata']['name']} got a time to live before its warmup was over")
        if resource == MODEL_WARMUPS and old is not None and new is not None and _is_over(old):
            same = old.get("status") == new.get("status") or old["metadata"]["uid"] != new["metadata"]["uid"]
            if not same:
                self._broken(f"the status of {new['metadata']['name']} changed after its terminal phase")

    def _job_is_new(self, job: Object) -> None:
        name, node = job["metadata"]["name"], job["metadata"]["annotations"][NODE_ANNOTATION]
        owner = self._owner(job)
        if owner is None:
            return  # a Job of a warmup that went while it was asked for: the garbage collector's
        if _is_over(owner):
            self._broken(f"{name} was created after the terminal phase of its warmup")
        unfinished = [one for one in self.jobs(owner["metadata"]["name"]) if not is_finished(one)]
        limit = Policies.model_validate(owner["spec"].get("policies") or {}).parallelism
        if len(unfinished) > limit:
            self._broken(f"{name} is unfinished Job {len(unfinished)} of its warmup, which allows {limit}")
        if now_s() - self.closed_at_s.get(node, now_s()) > GRACE_S:
            self._broken(f"{name} was created on {node}, which no warmup may use")

    def _owner(self, job: Object) -> Object | None:
        uid = owner_uid(job)
        return next((w for w in self.cluster.store.of(MODEL_WARMUPS) if w["metadata"]["uid"] == uid), None)

    def _broken(self, sentence: str) -> None:
        self.cluster.broken.append(f"at {now_s():.3f} s: {sentence}")


def is_finished(job: Object) -> bool:
    """Complete or failed for good."""
    return any(
        condition["type"] in ("Complete", "Failed") for condition in (job.get("status") or {}).get("conditions") or ()
    )


def _is_over(warmup: Object) -> bool:
    phase = phase_of(warmup)
    return phase is not None and phase.is_terminal


def unsettled(world: WarmupWorld) -> list[str]:
    """What is not as it must be once faults have stopped and all Jobs had their time; one sentence each."""
    found = []
    for warmup in world.cluster.store.of(MODEL_WARMUPS):
        name, status = warmup["metadata"]["name"], warmup.get("status") or {}
        phase = phase_of(warmup)
        if phase is None:
            found.append(f"{name} has no phase")
        elif phase is WarmupPhase.RUNNING:
            found.append(f"{name} still runs: {status}")
        elif phase.is_terminal and any(
            job["spec"].get("ttlSecondsAfterFinished") is None for job in world.jobs(name) if is_finished(job)
        ):
            found.append(f"{name} is over, and a Job of it stays for ever")
    return found

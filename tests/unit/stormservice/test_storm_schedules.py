"""Random schedules with faults: users change services, Pods fail, calls are lost, operators die; then all settles.

What holds at every moment is checked at every change. A failure names its seed, and the same seed plays the same way.
"""

from __future__ import annotations

import logging
import os
import random

import pytest
from storm_cluster import PODS, ROLESETS, STORMSERVICES, StormCluster, role, storm

from aibrix_operator.api import orchestration
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import key_of
from aibrix_operator.sim import loop
from aibrix_operator.stormservice import naming, rollout

SEEDS = range(int(os.environ.get("AIBRIX_STORM_SEEDS", "10")))
STEPS = 25
ORDERS = ("Sequential", "Parallel", "Interleave")


class Laws:
    """Told of every change; what is wrong goes into the cluster's list of broken laws."""

    def __init__(self, cluster: StormCluster) -> None:
        self.cluster = cluster
        self.limits: dict[str, rollout.Bounds] = {}
        """Role → the loosest bounds since its last rest: a change of the spec may meet what the old one allowed."""
        cluster.watchers.append(self.changed)

    def changed(self, verb, resource, old, new) -> None:
        if resource == PODS and old is None and new is not None and verb == "create":
            self._made(new)
        if resource == ROLESETS and old is None and new is not None:
            self._one_revision(new)

    def _made(self, pod) -> None:
        labels = pod["metadata"]["labels"]
        name = labels[orchestration.ROLE_LABEL]
        roleset = self.cluster.find(ROLESETS, labels[orchestration.ROLESET_LABEL])
        spec = next((r for r in roleset["spec"]["roles"] if r["name"] == name), None) if roleset else None
        if spec is None or spec.get("podGroupSize", 1) > 1:
            return
        strategy = spec.get("updateStrategy", {})
        limits = rollout.bounds(spec.get("replicas", 0), strategy.get("maxSurge"), strategy.get("maxUnavailable"))
        owner = pod["metadata"]["ownerReferences"][0]["uid"]
        there = [
            p
            for p in self.cluster.pods(name)
            if p["metadata"]["ownerReferences"][0]["uid"] == owner
            and p.get("status", {}).get("phase") not in ("Failed", "Succeeded")
        ]
        # A create that arrives late, or again, was decided on when fewer were there or more were wanted.
        if len(there) > max(limits.ceiling, self.limits.get(name, limits).ceiling):
            self.cluster.broken.append(f"role {name}: {len(there)} Pods where {limits.ceiling} may be")
        hash_ = naming.template_hash(spec["template"])
        if labels[orchestration.HASH_LABEL] != hash_ and self.cluster.calm:
            self.cluster.broken.append(f"{pod['metadata']['name']} was made of a template that is not its RoleSet's")

    def _one_revision(self, roleset) -> None:
        labels = roleset["metadata"]["labels"]
        annotation = roleset["metadata"]["annotations"][orchestration.REVISION_ANNOTATION]
        if labels[orchestration.STORM_REVISION_LABEL] != annotation:
            self.cluster.broken.append(f"{roleset['metadata']['name']} is of two revisions")


class Schedule:
    """One seed."""

    def __init__(self, cluster: StormCluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.image = 1
        cluster.calm = True
        self.laws = Laws(cluster)
        self.bad: set[str] = set()
        cluster.kubelet.is_good = lambda pod: pod["spec"]["containers"][0]["image"] not in self.bad

    def new_service(self) -> None:
        roles = [self._role(name) for name in ("a", "b", "c")[: 1 + self.chance.randrange(3)]]
        is_pooled = self.chance.random() < 0.6
        strategy = {"maxSurge": self.chance.randrange(2), "maxUnavailable": self.chance.randrange(2)}
        spec = (
            {"mode": "Pooled"} if is_pooled else {"replicas": 1 + self.chance.randrange(3), "updateStrategy": strategy}
        )
        self.cluster.apply(storm("pd", *roles, roleset={"updateStrategy": self.chance.choice(ORDERS)}, **spec))

    def _role(self, name: str) -> dict:
        strategy = {
            "type": self.chance.choice(["Recreate", "Recreate", "InPlaceIfPossible"]),
            "maxSurge": self.chance.randrange(2),
            "maxUnavailable": self.chance.randrange(3),
        }
        more = {"stateful": True} if self.chance.random() < 0.4 else {}
        if self.chance.random() < 0.2:
            more["podGroupSize"] = 2
        if self.chance.random() < 0.3:
            more["drain"] = {"timeoutSeconds": 3}
        return role(name, 1 + self.chance.randrange(3), updateStrategy=strategy, **more)

    def step(self) -> None:
        """Something happens."""
        deeds = [
            self._new_image,
            self._new_image,
            self._scale_role,
            self._fail,
            self._unready,
            self._delete_pod,
            self._lose,
            self._refuse,
            self._restart,
            self._lag,
            self._go_back,
        ]
        self.chance.choice(deeds)()

    def _roles(self) -> list[str]:
        return [r["name"] for r in self.cluster.find(STORMSERVICES, "pd")["spec"]["template"]["spec"]["roles"]]

    def _new_image(self) -> None:
        self.image += 1
        image = f"engine:{self.image}"
        if self.chance.random() < 0.3:
            self.bad.add(image)
        names = self._roles() if self.chance.random() < 0.5 else [self.chance.choice(self._roles())]
        for name in names:
            self.cluster.set_image("pd", name, image)

    def _go_back(self) -> None:
        self.cluster.set_image(
            "pd", self.chance.choice(self._roles()), f"engine:{1 + self.chance.randrange(self.image)}"
        )

    def _scale_role(self) -> None:
        wanted = self.chance.randrange(4)
        self.cluster.edit_role("pd", self.chance.choice(self._roles()), lambda r: r.update(replicas=wanted))
        self._unsettle()

    def _unsettle(self) -> None:
        """From here on bounds of before may still be met by what is under way."""
        for name in self._roles():
            self.laws.limits[name] = rollout.Bounds(4, 2, 4)

    def _any_pod(self):
        pods = [p for p in self.cluster.pods() if "deletionTimestamp" not in p["metadata"]]
        return self.chance.choice(pods) if pods else None

    def _fail(self) -> None:
        if pod := self._any_pod():
            self.cluster.kubelet.fail(pod)

    def _unready(self) -> None:
        if pod := self._any_pod():
            self.cluster.kubelet.set_ready(pod, self.chance.random() < 0.5)

    def _delete_pod(self) -> None:
        if pod := self._any_pod():
            self.cluster.store.delete(PODS, key_of(pod))

    def _lose(self) -> None:
        """The answers of some writes are lost: they were carried out."""
        left = [1 + self.chance.randrange(3)]

        def lost(verb, resource, name, body):
            if left[0] and verb != "list" and self.chance.random() < 0.5:
                left[0] -= 1
                return errors.Unavailable("no answer in time")
            return None

        self.cluster.store.lost = lost

    def _refuse(self) -> None:
        """Some writes fail, and nothing is done."""
        left = [1 + self.chance.randrange(3)]

        def fault(verb, resource, name, body):
            if left[0] and verb != "list" and self.chance.random() < 0.5:
                left[0] -= 1
                # A deletion ends in a conflict only where the name is another object's.
                is_busy = verb == "delete" or self.chance.random() < 0.5
                return errors.Unavailable("not now") if is_busy else errors.Conflict("changed")
            return None

        self.cluster.store.fault = fault

    def _restart(self) -> None:
        self.cluster.is_to_restart = True

    def _lag(self) -> None:
        self.cluster.store.watch_delay_s = self.chance.choice([0.0, 0.3, 1.5])


async def play(seed: int) -> None:
    """One schedule; LawBroken or AssertionError when something is wrong."""
    chance = random.Random(seed)
    async with StormCluster(ready_s=1.0, grace_s=0.5) as cluster:
        schedule = Schedule(cluster, chance)
        cluster.is_to_restart = False
        schedule.new_service()
        for _ in range(STEPS):
            await cluster.run(chance.choice([0.1, 0.7, 2.0, 5.0]))
            schedule.step()
            if cluster.is_to_restart:
                cluster.is_to_restart = False
                await cluster.kill_operator(cluster.operators[0])
                await cluster.run(0.5)
                cluster.start_operator()
        store = cluster.store
        store.fault = store.lost = lambda verb, resource, name, body: None
        store.watch_delay_s = 0.0
        for name in schedule._roles():  # the fix that every user comes to
            cluster.set_image("pd", name, "engine:good")
        await settle(cluster, seed)
        check_rest(cluster)
        await cluster.rest(30)
        store.delete(STORMSERVICES, ("default", "pd"))
        await cluster.until(lambda: not store.objects, 120, what=f"seed {seed}: left over {list(store.objects)}")


async def settle(cluster: StormCluster, seed: int) -> None:
    def is_over() -> bool:
        images = {p["spec"]["containers"][0]["image"] for p in cluster.pods()}
        status = cluster.status()
        return cluster.is_ready() and images <= {"engine:good"} and status["updatedReadyReplicas"] == status["replicas"]

    for _ in range(300):
        if is_over():
            return
        for pod in cluster.pods():  # a kubelet looks at its Pods all the time
            ended = pod.get("status", {}).get("phase") in (None, "Pending", "Failed")
            if "deletionTimestamp" not in pod["metadata"] and not ended:
                cluster.kubelet.set_ready(pod, cluster.kubelet.is_good(pod))
        await cluster.run(2)
    raise AssertionError(f"seed {seed} does not settle: {cluster.status()}")


def check_rest(cluster: StormCluster) -> None:
    """What is there is what the spec says, and nothing is marked as on its way."""
    spec = cluster.find(STORMSERVICES, "pd")["spec"]
    count = len(cluster.rolesets())
    assert count == spec.get("replicas", 1)
    for wanted in spec["template"]["spec"]["roles"]:
        pods = cluster.pods(wanted["name"])
        assert len(pods) == count * wanted["replicas"] * wanted.get("podGroupSize", 1)
        for pod in pods:
            marks = {orchestration.DRAINING, orchestration.IN_PLACE_TARGET, orchestration.IN_PLACE_STATE}
            assert not marks & set(pod["metadata"].get("annotations", {}))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_keeps_its_laws_and_settles(seed):
    logging.getLogger("aibrix_operator").setLevel(logging.CRITICAL)  # refused calls are part of it
    try:
        loop.run(play(seed))
    finally:
        logging.getLogger("aibrix_operator").setLevel(logging.NOTSET)

"""Random schedules: users, Pods and engines at work while calls are lost or late, watches break and operators die.

One seed is one schedule; a failure prints it. The laws of ``adapter_cluster`` hold all the while. When the faults stop,
every adapter is where it is wanted, nothing that was deleted is left, and nothing is written any more.
"""

import random

import pytest
from adapter_cluster import AdapterCluster

from aibrix_operator.api import names
from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_ADAPTERS, PODS, SERVICES, key_of
from aibrix_operator.sim import loop
from aibrix_operator.sim.store import now_s

ADAPTERS, MOST_PODS = ("sql", "law", "med"), 5
MINUTES = 20
SETTLE_S = 400.0
"""The longest wait of a retry, and some lists."""


class Schedule:
    """What happens, drawn from one seed."""

    def __init__(self, cluster, seed):
        self.cluster, self.random = cluster, random.Random(seed)
        self.trouble_until_s = 0.0
        self.wanted = {}
        """Adapter → replicas, of those that are not deleted."""

    async def run(self):
        for _ in range(3):
            self.add_pod()
        for name in ADAPTERS[:2]:
            self.create(name)
        for _ in range(MINUTES * 6):
            await self.cluster.run(self.random.uniform(1, 19))
            self.random.choice(self.happenings())()
            self.cluster.check_lost()
        await self.settle()

    def happenings(self):
        return [
            self.add_pod,
            self.remove_pod,
            self.toggle_ready,
            self.relabel,
            self.restart_engine,
            self.restart_engine,
            self.spoil_engine,
            self.heal_engines,
            self.create_any,
            self.edit,
            self.delete,
            self.kill_operator,
            self.break_api_server,
            self.deafen,
            lambda: None,
        ]

    # --- Pods and engines

    def pods(self):
        return sorted(key_of(pod)[1] for pod in self.cluster.store.of(PODS))

    def add_pod(self):
        free = [f"b-{n}" for n in range(MOST_PODS) if f"b-{n}" not in self.pods()]
        if free:
            self.cluster.pod(self.random.choice(free))

    def remove_pod(self):
        if len(self.pods()) > 1:
            self.cluster.remove_pod(self.random.choice(self.pods()))

    def toggle_ready(self):
        pod = self.random.choice(self.pods())
        is_ready = self.cluster.find(PODS, pod)["status"]["conditions"][0]["status"] == "True"
        self.cluster.pod(pod, labels=self.cluster.find(PODS, pod)["metadata"]["labels"], ready=not is_ready)

    def relabel(self):
        pod = self.random.choice(self.pods())
        is_selected = self.cluster.find(PODS, pod)["metadata"]["labels"]["app"] == "base"
        self.cluster.pod(pod, labels={"app": "other" if is_selected else "base"})

    def restart_engine(self):
        self.cluster.engine(self.random.choice(self.pods())).forget()

    def spoil_engine(self):
        engine = self.cluster.engine(self.random.choice(self.pods()))
        if engine.mode == "silent":
            engine.forget()  # it was down, and starts anew
        engine.mode = self.random.choice(["refuses", "silent", "hangs"])

    def heal_engines(self):
        for pod in self.pods():
            engine = self.cluster.engine(pod)
            if engine.mode == "silent":
                engine.forget()  # it was down, and starts anew
            elif engine.mode != "well":
                engine.lost_at_s = dict.fromkeys(engine.lost_at_s, now_s())  # nobody could be told before
            engine.mode = "well"

    # --- users

    def create(self, name):
        self.wanted[name] = self.random.choice([None, 1, 2])
        self.cluster.adapter(name, replicas=self.wanted[name])

    def create_any(self):
        there = {key_of(obj)[1] for obj in self.cluster.store.of(MODEL_ADAPTERS)}
        missing = [name for name in ADAPTERS if name not in there]
        if missing:
            self.create(self.random.choice(missing))

    def edit(self):
        if not self.wanted:
            return
        name = self.random.choice(sorted(self.wanted))
        self.wanted[name] = self.random.choice([None, 1, 2])
        url = f"s3://bucket/{self.random.randrange(3)}"
        self.cluster.store.change(
            MODEL_ADAPTERS, ("default", name), {"spec": {"replicas": self.wanted[name], "artifactURL": url}}
        )

    def delete(self):
        if self.wanted:
            name = self.random.choice(sorted(self.wanted))
            del self.wanted[name]
            self.cluster.store.delete(MODEL_ADAPTERS, ("default", name))

    # --- operators and the API server

    def kill_operator(self):
        async def kill(victim):
            await self.cluster.kill_operator(victim)
            self.cluster.start_operator()

        victim = self.random.choice(self.cluster.operators)
        self.killing = self.cluster.later(kill(victim))

    def break_api_server(self):
        kind = self.random.choice(["fault", "lost", "late", "slow"])
        store, draw = self.cluster.store, random.Random(self.random.random())

        def sometimes(verb, resource, name, body):
            return errors.Unavailable("HTTP 503: not now", status=503) if draw.random() < 0.3 else None

        def lost(verb, resource, name, body):
            return errors.Unavailable("no answer in time") if draw.random() < 0.3 else None

        if kind == "fault":
            store.fault = sometimes
        elif kind == "lost":
            store.lost = lost
        elif kind == "late":
            store.late = lambda verb, resource, name: draw.uniform(0.1, 4) if draw.random() < 0.2 else None
        else:
            store.watch_delay_s = draw.uniform(0.5, 5)
        self.cluster.call_later(self.random.uniform(5, 30), self.mend_api_server)

    def mend_api_server(self):
        store = self.cluster.store
        store.fault = store.lost = lambda verb, resource, name, body: None
        store.late = lambda verb, resource, name: None
        store.watch_delay_s = 0.0

    def deafen(self):
        operator = self.random.choice(self.cluster.operators)
        operator.is_deaf = True
        self.cluster.call_later(self.random.uniform(5, 30), operator.hear_again)

    # --- the end

    async def settle(self):
        cluster = self.cluster
        self.heal_engines()
        self.mend_api_server()
        for pod in self.pods():
            cluster.pod(pod)  # ready now, so that what was given up is tried again
        await cluster.run(60)
        for operator in cluster.operators:
            operator.hear_again()
        await cluster.run(SETTLE_S)
        selected = set(self.pods())
        assert {key_of(obj)[1] for obj in cluster.store.of(MODEL_ADAPTERS)} == set(self.wanted)
        for name, replicas in self.wanted.items():
            status = cluster.status(name)
            count = min(replicas or len(selected), len(selected))
            story = f"{name}, {replicas} wanted on {selected}: {status}"
            assert len(status["instances"]) == count, story
            assert (status["phase"], cluster.is_ready(name)) == ("Running", True), story
            assert set(status["instances"]) <= cluster.holders(name), story
            assert not [
                key
                for key in cluster.find(MODEL_ADAPTERS, name)["metadata"].get("annotations", {})
                if key.startswith(names.ADAPTER_PREFIX)
            ], story
        for name in set(ADAPTERS) - set(self.wanted):
            assert cluster.holders(name) == set(), f"{name} was deleted, and is in engines"
            assert cluster.find(SERVICES, name) is None
        written = len(cluster.store.writes)
        await cluster.run(60)
        assert len(cluster.store.writes) == written, cluster.store.writes[written:]


def play(seed):
    policies = tuple(Policy)

    async def run():
        async with AdapterCluster(operators=2, policy=policies[seed % len(policies)]) as cluster:
            await Schedule(cluster, seed).run()

    loop.run(run())


@pytest.mark.parametrize("seed", range(24))
def test_laws_hold_and_all_settles(seed):
    play(seed)

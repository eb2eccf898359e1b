"""One seed is one schedule of warmups, nodes that come and go, and faults."""

from __future__ import annotations

import random

from aibrix_operator.cluster.resource import JOBS, MODEL_WARMUPS
from aibrix_operator.controller.keyed import KeyedController
from aibrix_operator.modelwarmup.kind import ModelWarmups
from aibrix_operator.sim import loop
from aibrix_operator.sim.keyed import KeyedCluster
from aibrix_operator.sim.keyed_trouble import Trouble
from aibrix_operator.sim.warmups import NAMESPACE, WarmupWorld, unsettled

MINUTES_20 = 1200.0
FAULTS = 8


def play(seed: int) -> int:
    """Play it, and return how many faults happened. Raises LawBroken and AssertionError."""
    state = random.getstate()
    random.seed(f"{seed}/jitter")
    try:
        return loop.run(story(seed))
    finally:
        random.setstate(state)


def host(hub):
    return [KeyedController(ModelWarmups(hub), hub)]


def wishes_of(world):
    nodes = [f"n{i}" for i in range(6)]

    def apply(chance):
        some = chance.sample(nodes, chance.randint(0, 4)) + (["nowhere"] if chance.random() < 0.2 else [])
        name = f"w{chance.randint(0, 3)}"
        if world.cluster.find(MODEL_WARMUPS, name, NAMESPACE) is None:
            world.apply(name, *some, parallelism=chance.randint(1, 3), ttlSecondsAfterFinished=chance.randint(1, 60))

    def drop(chance):
        world.lose_node(chance.choice(nodes))

    def close(chance):
        world.node(chance.choice(nodes), **{"model.aibrix.ai/warmup-enabled": "false"})

    def open_(chance):
        world.node(chance.choice(nodes))

    def delete(chance):
        names = world.cluster.names_of(MODEL_WARMUPS)
        if names and chance.random() < 0.5:
            world.cluster.store.delete(MODEL_WARMUPS, (NAMESPACE, chance.choice(names)))

    def meddle(chance):
        jobs = world.jobs()
        if jobs:
            job = chance.choice(jobs)
            world.remove_job((NAMESPACE, job["metadata"]["name"]), job["metadata"]["uid"])

    return (apply, apply, apply, drop, close, open_, open_, delete, meddle)


async def story(seed):
    chance = random.Random(seed)
    async with KeyedCluster(host, operators=chance.choice((1, 2))) as cluster:
        world = WarmupWorld(cluster, seed)
        world.fails = lambda node: chance.random() < 0.2
        for i in range(6):
            world.node(f"n{i}")
        trouble = Trouble(cluster, seed)
        await trouble.play(MINUTES_20, wishes_of(world), faults=8, events=30)
        trouble.end()
        await cluster.run(300)
        assert not unsettled(world)
        writes = len(cluster.store.writes)
        await cluster.run(600)
        assert len(cluster.store.writes) == writes, cluster.store.writes[writes:]
        owners = {warmup["metadata"]["uid"] for warmup in cluster.store.of(MODEL_WARMUPS)}
        assert {job["metadata"]["ownerReferences"][0]["uid"] for job in cluster.store.of(JOBS)} <= owners
        return sum(trouble.counts.values())

"""The frame itself under random faults: what is wanted comes about, nothing stays behind, and then there is silence."""

import random

import pytest
from keyed_gadgets import GADGETS, PARTS, Gadgets

from aibrix_operator.controller.cache import owner_uid
from aibrix_operator.controller.keyed import KeyedController
from aibrix_operator.sim import loop
from aibrix_operator.sim.keyed import KeyedCluster
from aibrix_operator.sim.keyed_trouble import Trouble

NAMES = ("a", "b", "c")


def wishes_of(cluster):
    def scale(chance):
        name = chance.choice(NAMES)
        spec = {"parts": chance.randint(0, 5)}
        cluster.store.put(GADGETS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    def delete(chance):
        name = chance.choice(NAMES)
        if cluster.find(GADGETS, name) is not None:
            cluster.store.delete(GADGETS, ("default", name))

    def meddle(chance):
        names = cluster.names_of(PARTS)
        if names:
            cluster.store.delete(PARTS, ("default", chance.choice(names)))

    return scale, scale, delete, meddle


async def story(seed):
    chance = random.Random(seed)
    async with KeyedCluster(lambda hub: [KeyedController(Gadgets(), hub)], chance.choice((1, 2))) as cluster:
        trouble = Trouble(cluster, seed)
        await trouble.play(1200, wishes_of(cluster), faults=10, events=30)
        trouble.end()
        await cluster.run(120)
        for gadget in cluster.store.of(GADGETS):
            name, wanted = gadget["metadata"]["name"], gadget["spec"]["parts"]
            parts = [part for part in cluster.store.of(PARTS) if owner_uid(part) == gadget["metadata"]["uid"]]
            assert sorted(part["metadata"]["name"] for part in parts) == [f"{name}-{i}" for i in range(wanted)]
            assert gadget["status"] == {"parts": wanted}
        owners = {gadget["metadata"]["uid"] for gadget in cluster.store.of(GADGETS)}
        assert {owner_uid(part) for part in cluster.store.of(PARTS)} <= owners
        writes = len(cluster.store.writes)
        await cluster.run(600)
        assert len(cluster.store.writes) == writes


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_all_comes_to_what_is_wanted(seed):
    state = random.getstate()
    random.seed(f"{seed}/jitter")
    try:
        loop.run(story(seed))
    finally:
        random.setstate(state)

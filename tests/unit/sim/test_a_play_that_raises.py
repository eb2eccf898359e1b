"""A seed whose play raises is a failure like any other: it is told, and all the others are played."""

import dataclasses
import random

import pytest

from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.sim import campaign, loop
from aibrix_operator.sim.happening import REGISTRY, Repairs, Stage, Story
from aibrix_operator.sim.happenings import other_hands
from aibrix_operator.sim.play import play
from aibrix_operator.sim.world import NAMESPACE, SimulatedCluster


def _breaks(stage):
    raise ValueError(f"nobody expects this of {len(stage.pods())} Pods")


@pytest.fixture
def broken_load(monkeypatch):
    """The happening ``load`` raises."""
    monkeypatch.setitem(REGISTRY, "load", dataclasses.replace(REGISTRY["load"], happen=_breaks))


@pytest.mark.usefixtures("broken_load")
def test_what_a_play_raises_is_told_with_its_place_and_figures():
    outcome = play(4, ["lost-call"])
    (violation,) = outcome.violations
    first, *where = violation.splitlines()
    assert first.startswith("the play raised ValueError: nobody expects this of ")
    assert any("in _breaks" in line for line in where)
    assert outcome.virtual_s > 0
    assert outcome.trace == play(4, ["lost-call"]).trace != ""


@pytest.mark.usefixtures("broken_load")
@pytest.mark.parametrize("jobs", [1, 2])
def test_the_seeds_after_it_are_played(jobs):
    report = campaign.run(range(4, 8), ["lost-call"], jobs)
    assert report.seeds == 4
    assert [o.seed for o in report.failed] == [4, 5, 6, 7]


def test_a_record_is_forged_where_another_status_cannot_be_read():
    async def story():
        async with SimulatedCluster() as cluster:
            cluster.add_pod("pod-0", 40 << 30)
            for name in ("a", "b"):
                cluster.seat(name, "pod-0", 4 << 30, 1 << 30, limit_bytes=2 << 30)
            obj = cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, "a"]
            cluster.store.put(MODEL_CLAIMS, {**obj, "status": {"instances": "none", "phase": 7}})
            told = Story()
            other_hands.record_forged(Stage("forged-record", cluster, random.Random(1), told, Repairs()))
            assert "the record of b is forged" in told.lines[0]

    loop.run(story())

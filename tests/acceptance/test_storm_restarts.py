"""An operator that is killed after any one write, and started again, makes and deletes no other Pods for it."""

from __future__ import annotations

import asyncio
import collections

import pytest
from storm_cluster import PODS, StormCluster, role, storm

from aibrix_operator.sim import loop

ROLES = (
    role("direct", 3, updateStrategy={"maxSurge": 1, "maxUnavailable": 0}),
    role("slots", 2, stateful=True, drain={"timeoutSeconds": 3}),
    role("grouped", 1, podGroupSize=2),
    role("images", 2, updateStrategy={"type": "InPlaceIfPossible"}),
)


def play(killed_after: int | None) -> tuple[collections.Counter, int]:
    """A service is made and updated. Pods made and deleted by role, and writes in all."""

    async def story() -> tuple[collections.Counter, int]:
        async with StormCluster(ready_s=1.0, grace_s=0.5) as cluster:
            counts: collections.Counter = collections.Counter()
            reached = asyncio.Event()

            def changed(verb, resource, old, new) -> None:
                if killed_after is not None and len(cluster.store.writes) >= killed_after:
                    reached.set()
                if resource == PODS and (old is None or new is None):
                    pod = new or old
                    counts[pod["metadata"]["labels"]["role-name"], "made" if old is None else "gone"] += 1

            cluster.watchers.append(changed)

            async def kill() -> None:
                await reached.wait()
                await cluster.kill_operator(cluster.leader)
                await asyncio.sleep(1.0)
                cluster.start_operator()

            killing = asyncio.create_task(kill())
            cluster.apply(storm("pd", *ROLES, mode="Pooled"))
            await cluster.until(cluster.is_ready)
            cluster.set_images("pd", "engine:2")
            await cluster.until(
                lambda: (
                    cluster.is_ready() and {p["spec"]["containers"][0]["image"] for p in cluster.pods()} == {"engine:2"}
                )
            )
            await cluster.rest(20)
            killing.cancel()
            return counts, len(cluster.store.writes)

    return loop.run(story())


@pytest.fixture(scope="module")
def undisturbed() -> tuple[collections.Counter, int]:
    return play(None)


def test_the_undisturbed_update_replaces_what_it_must_and_no_more(undisturbed):
    counts, _ = undisturbed
    assert counts == {
        ("direct", "made"): 6,
        ("direct", "gone"): 3,
        ("slots", "made"): 4,
        ("slots", "gone"): 2,
        ("grouped", "made"): 4,
        ("grouped", "gone"): 2,
        ("images", "made"): 2,
    }


@pytest.mark.parametrize("part", range(4))
def test_a_restart_after_any_write_changes_nothing(undisturbed, part):
    counts, writes = undisturbed
    for after in range(1 + part, writes, 4):
        assert play(after)[0] == counts, f"killed after write {after}"

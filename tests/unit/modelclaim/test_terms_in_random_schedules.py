"""The lead changes hands again and again while everything else goes wrong too: the laws hold, and all settles."""

import asyncio
import random
from functools import partial

import pytest
from simulated import simulated

from aibrix_operator.api.term import parse_term
from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.modelclaim import operator
from aibrix_operator.modelclaim.leading import Leading
from aibrix_operator.sim.play import CALM_S, Player
from aibrix_operator.sim.schedule import plan

PLAY_S = 400.0
A_TERM_S = 12.0
LONGEST_GAP_S = 4.0
TERM = parse_term("2026-11-29T08:00:00Z/1")


@pytest.mark.parametrize("seed", [0, 1, 2, 9])
@simulated
async def test_laws_hold_when_terms_end_at_any_moment(cluster, seed):
    player, failures = Player(seed), []
    leading = Leading(
        cluster.world, partial(list_claims, cluster), lambda task: task.add_done_callback(failures.append)
    )
    stop, start = cluster.stop_controller, cluster.start_controller
    # The schedule's own restarts are terms too: one world lives on in this process, with its caches.
    cluster.stop_controller, cluster.start_controller = leading.end, lambda: leading.begin(TERM)
    terms = asyncio.create_task(change_hands(leading, random.Random(seed)))
    await player.trouble(cluster, plan(seed, seconds=PLAY_S), PLAY_S)
    terms.cancel()
    await asyncio.wait([terms])
    await leading.end()
    leading.begin(TERM)
    cluster.stop_controller, cluster.start_controller = stop, start
    await player.calm(cluster, CALM_S)
    assert len(failures) > PLAY_S / (A_TERM_S + LONGEST_GAP_S) / 2
    assert all(task.cancelled() or task.exception() is None for task in failures)
    assert player.violations == [], "\n".join(player.story.lines)


async def list_claims(cluster):
    """As the operator does it. Seed 9 stops an engine that serves when a term begins from what a late watch told."""
    objects = cluster.store.objects
    version = max(int(obj["metadata"]["resourceVersion"]) for obj in objects.values())
    operator.take_list(cluster.world, [obj for key, obj in objects.items() if key[0] == MODEL_CLAIMS.plural], version)


async def change_hands(leading, chance):
    while True:
        await asyncio.sleep(chance.expovariate(1 / A_TERM_S))
        await leading.end()
        await asyncio.sleep(chance.uniform(0, LONGEST_GAP_S))
        leading.begin(TERM)

"""An engine above its record that stays on its route is held against the controller, once it must have been told."""

import asyncio

import pytest
from simulated import CARD_24, GIB

from aibrix_operator.sim import loop
from aibrix_operator.sim.world import SimulatedCluster


def broken_by_answers(*seconds, fails_s=None):
    """What the laws say of a controller that does nothing, is answered at these times, and is not at ``fails_s``."""

    async def play():
        cluster = SimulatedCluster()
        runtime = cluster.add_pod("warm-0", CARD_24)
        cluster.seat("a", "warm-0", 6 * GIB, GIB, limit_bytes=17 * GIB, record_bytes=2 * GIB)
        for before_s, at_s in zip((0, *seconds), seconds, strict=False):
            await asyncio.sleep(at_s - before_s)
            cluster.laws.answered("10.0.0.1", None if at_s == fails_s else runtime.snapshot())
        return "\n".join(cluster.laws.broken)

    return loop.run(play())


@pytest.mark.parametrize(("fails_s", "is_caught"), [(None, True), (2, False)])
def test_an_answer_before_one_that_failed_may_have_been_thrown_away(fails_s, is_caught):
    told = broken_by_answers(1, 2, 5, fails_s=fails_s)
    assert ("a on warm-0 is above its record, and still on the route" in told) is is_caught

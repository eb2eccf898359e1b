"""Random schedules: whatever goes wrong, the ledger's laws hold all the time, and afterwards everything settles.

More of them: ``python -m aibrix_operator.sim.schedule FIRST LAST``, which also replays a failing one with its story.
"""

import pytest
from simulated import simulated

from aibrix_operator.sim.schedule import CALM_S, PLAY_S, Schedule
from aibrix_operator.sim.settled import unsettled


@pytest.mark.parametrize("seed", range(8))
@simulated
async def test_laws_hold_through_faults_and_every_claim_that_fits_is_served_afterwards(cluster, seed):
    schedule = Schedule(cluster, seed)
    await schedule.play(PLAY_S)
    await schedule.calm(CALM_S)
    assert schedule.faults >= 5
    assert unsettled(cluster) == [], "\n".join(schedule.story)

"""Random schedules of pools whose engines sleep: the laws hold all the time, and afterwards everything settles.

More of them: ``python -m aibrix_operator.sim.sleep_schedule FIRST LAST``, which also replays a failing one.
"""

import pytest
from simulated import simulated

from aibrix_operator.sim.sleep_schedule import play


@pytest.mark.parametrize("seed", [8, 20, 23, 27])
@simulated
async def test_laws_of_sleeps_and_wakes_hold_through_faults_and_no_request_is_left(cluster, seed):
    story = []
    assert await play(cluster, seed, story) == [], "\n".join(story)

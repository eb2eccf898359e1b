"""Random schedules: whatever goes wrong, the laws hold after every step, and afterwards everything settles.

More of them, and the replay of one: ``aibrix-operator simulate``.
"""

import pytest

from aibrix_operator.sim.play import play


@pytest.mark.parametrize("seed", range(12))
def test_laws_hold_through_faults_and_everything_settles_afterwards(seed):
    outcome = play(seed)
    assert outcome.violations == (), "\n".join([*outcome.story, *outcome.violations])
    assert outcome.faults.total() >= 5

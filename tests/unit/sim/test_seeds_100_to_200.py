"""Random schedules: whatever goes wrong, the laws hold after every step, and afterwards everything settles.

More of them, and the replay of one: ``aibrix-operator simulate``. One file for each process of the test run.
"""

import pytest
from seeds import passes


@pytest.mark.parametrize("seed", range(100, 200))
def test_laws_hold_through_faults_and_everything_settles_afterwards(seed):
    passes(seed)

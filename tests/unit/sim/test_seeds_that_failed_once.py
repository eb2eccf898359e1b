"""Schedules that found a fault once, in the controller or in a law. What was wrong is told in the test of each mend."""

import pytest
from seeds import passes

SEEDS = (
    *(379, 383, 438, 516, 521, 542, 547, 903, 907, 939, 959, 966, 1014, 1044, 1094, 1095, 1243, 1257, 1328, 1346, 1415),
    *(1489, 1669, 1762, 1821, 1834, 1878, 1916, 1973, 2047, 2070, 2294, 2303, 2423, 3669, 4646, 4867),
)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_that_failed_once_passes(seed):
    passes(seed)

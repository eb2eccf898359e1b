"""Random schedules in a pool that is too small for its claims: sleepers wait, move and give up, and the laws hold."""

import pytest
from seeds import passes

from aibrix_operator.sim.schedule import CROWDED_FROM, fault_names, kinds_of


@pytest.mark.parametrize("seed", range(CROWDED_FROM, CROWDED_FROM + 24))
def test_laws_hold_where_room_is_always_short_and_everything_settles_afterwards(seed):
    passes(seed)


def test_each_crowded_schedule_has_a_fault_of_calls_and_chosen_faults_replace_those_that_it_draws():
    drawn = [set(kinds_of(seed, None)) & set(fault_names()) for seed in range(CROWDED_FROM, CROWDED_FROM + 8)]
    assert all(2 <= len(faults) <= 3 for faults in drawn)
    chosen = kinds_of(CROWDED_FROM, ["killed-pod"])
    assert set(chosen) & set(fault_names()) - {"killed-pod", "late-requests"} == set()
    assert "killed-pod" in chosen

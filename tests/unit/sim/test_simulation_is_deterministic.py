"""One seed plays the same way every time, in every process, and so does every part of it."""

import os
import subprocess
import sys

import pytest

from aibrix_operator.sim.play import play
from aibrix_operator.sim.schedule import UnknownFaults, chance_of, operators_of, plan

TRACE = "import sys; from aibrix_operator.sim.play import play; sys.stdout.write(play({seed}).trace)"
WITH_ELECTION = next(seed for seed in range(100) if operators_of(seed, None) > 1)


@pytest.mark.parametrize("seed", [1, WITH_ELECTION])
def test_two_processes_with_other_hashes_play_a_seed_alike(seed):
    program = [sys.executable, "-c", TRACE.format(seed=seed)]
    environments = [{**os.environ, "PYTHONHASHSEED": text} for text in ("1", "2")]
    running = [subprocess.Popen(program, env=env, stdout=subprocess.PIPE, text=True) for env in environments]
    traces = [process.communicate(timeout=120)[0] for process in running]
    assert traces[0] == traces[1] == play(seed).trace


def test_the_trace_tells_two_plays_apart():
    assert play(3, only=range(1, 20)).trace != play(3, only=range(1, 21)).trace


def test_actions_that_are_left_out_change_nothing_about_the_others():
    whole = play(5)
    numbers = whole.actions[:30]
    part = play(5, only=numbers)
    assert part.actions == numbers
    until = next(a.at_s for a in plan(5) if a.number == 31)
    told = [line for line in whole.story if float(line.split()[0]) < until - 0.001]
    assert list(part.story[: len(told)]) == told


def test_a_schedule_lasts_twenty_minutes_and_has_five_faults():
    outcome = play(7)
    assert outcome.virtual_s >= 1200
    assert outcome.faults.total() >= 5


def test_only_the_chosen_faults_happen():
    outcome = play(2, ["lost-call", "killed-pod"])
    assert set(outcome.faults) <= {"lost-call", "killed-pod"}
    assert outcome.faults.total() > 0
    assert not play(2, []).faults


def test_an_unknown_fault_is_named_with_those_that_there_are():
    with pytest.raises(UnknownFaults, match=r"no such fault: lost-cal; there are .*lost-call"):
        plan(0, ["lost-cal"])


def test_no_two_purposes_share_their_chance():
    assert chance_of(1, 2).random() != chance_of(1, 3).random() != chance_of(2, 3).random()

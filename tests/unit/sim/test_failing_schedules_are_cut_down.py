"""A failure shrinks to the actions that matter, and says how to replay it."""

import pytest

from aibrix_operator.modelclaim import retire
from aibrix_operator.sim.play import play
from aibrix_operator.sim.report_text import failure_text, replay_command
from aibrix_operator.sim.shrink import cut_down, kind_of, shrink


@pytest.mark.parametrize(
    "needed",
    [
        pytest.param({1}, id="the first"),
        pytest.param({40}, id="the last"),
        pytest.param({7, 8, 31}, id="some"),
        pytest.param(set(), id="none"),
    ],
)
def test_nothing_but_what_is_needed_is_left(needed):
    assert set(cut_down(range(1, 41), needed.issubset, 1000)) == needed


def test_it_ends_after_so_many_plays():
    plays = []
    cut_down(range(100), lambda numbers: plays.append(numbers) or False, 10)
    assert len(plays) == 10


def test_failures_of_one_kind_differ_in_figures_and_names_alone():
    one = "at 12.300 s: law 6: claim-1 on pod-0 is stopped 0.3 s after its route went"
    other = "at 999.000 s: law 6: claim-7 on pod-2 is stopped 1.0 s after its route went"
    assert kind_of(one) == kind_of(other) != kind_of("at 1.000 s: law 1: something else")


def test_a_broken_rule_is_found_cut_down_and_replayed(monkeypatch):
    """No drain at all: engines are stopped as soon as their route is gone."""
    monkeypatch.setattr(retire, "DRAIN_S", 0.0)
    faults = ["lost-call"]
    outcome = next(o for o in (play(seed, faults) for seed in range(20)) if o.violations)
    assert "law 6" in outcome.violations[0]
    shrunk = shrink(outcome, faults)
    assert len(shrunk.actions) <= 8 < len(outcome.actions)
    again = play(shrunk.seed, faults, only=shrunk.actions)
    assert (again.trace, again.violations) == (shrunk.trace, shrunk.violations)
    text = failure_text(outcome, shrunk, faults)
    numbers = ",".join(map(str, shrunk.actions))
    assert f"aibrix-operator simulate --seed {outcome.seed} --faults lost-call --only {numbers}" in text
    assert replay_command(outcome, faults, whole=True) in text

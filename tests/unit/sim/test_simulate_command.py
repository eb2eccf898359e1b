"""``aibrix-operator simulate`` as its users meet it."""

import json

import pytest
from typer.testing import CliRunner

from aibrix_operator.cli import app
from aibrix_operator.modelclaim import retire
from aibrix_operator.sim.schedule import fault_names


def run(*arguments):
    return CliRunner().invoke(app, ["simulate", *arguments], env={"COLUMNS": "200"})


def test_help_names_every_fault():
    text = run("--help").output
    assert [name for name in fault_names() if name not in text] == []


def test_seeds_end_with_their_figures():
    result = run("--seeds", "2", "--faults", "lost-call")
    assert result.exit_code == 0
    assert "2 seeds, 0 failed" in result.output
    assert "times real time per core" in result.output


def test_figures_come_as_json_too():
    figures = json.loads(run("--seeds", "2", "--jobs", "2", "--faults", "lost-call,killed-pod", "-o", "json").output)
    assert figures["seeds"] == 2
    assert figures["virtualSeconds"] >= 2 * 1200
    assert figures["faults"]["lost-call"] > 0
    assert figures["phases"]["Active"] > 0
    assert figures["failed"] == []


def test_one_seed_tells_its_story():
    result = run("--seed", "4", "--only", "none")
    assert result.exit_code == 0
    assert "setup: pod-1 joins" in result.output
    assert "no law was broken" in result.output


def test_a_failing_seed_ends_with_the_command_that_replays_it(monkeypatch):
    monkeypatch.setattr(retire, "DRAIN_S", 0.0)
    result = run("--seeds", "6", "--faults", "lost-call")
    assert result.exit_code == 1
    (command, *_) = [line for line in result.output.splitlines() if line.startswith("replay it: ")]
    replayed = run(*command.removeprefix("replay it: aibrix-operator simulate ").split())
    assert replayed.exit_code == 1
    assert "law 6" in replayed.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--only", "3"], "needs --seed"),
        (["--seed", "1", "--only", "x"], "no list of numbers"),
        (["--faults", "x"], "no such fault: x"),
    ],
)
def test_unusable_options_are_refused(arguments, why):
    result = run(*arguments)
    assert result.exit_code == 2
    assert why in result.output

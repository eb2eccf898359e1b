"""The plan command: exit codes, both outputs, and where its claims come from."""

import json

import pytest
import yaml
from explain_builders import manifest
from typer.testing import CliRunner

from aibrix_operator.cli import app

TWO = yaml.safe_dump_all([manifest("a"), manifest("b")])
THREE = yaml.safe_dump_all([manifest("a"), manifest("b"), manifest("c")])


def plan(*arguments, stdin=None):
    return CliRunner().invoke(app, ["plan", *arguments], input=stdin, env={"COLUMNS": "100"})


@pytest.fixture
def files(tmp_path):
    def write(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path

    return write


def test_it_ends_with_0_when_all_fit(files):
    done = plan("-f", str(files(claims=TWO) / "claims.yaml"), "--cards", "1xH20")
    assert done.exit_code == 0
    assert "All 2 claim(s) fit, on 1 of 1 card(s)." in done.output
    assert "a     █ footprint 30.0 GiB  ░ KV limit 17.5 GiB" in done.output


def test_it_ends_with_1_when_some_claim_does_not_fit_and_says_why(files):
    done = plan("-f", str(files(claims=THREE) / "claims.yaml"), "--cards", "1xH20")
    assert done.exit_code == 1
    assert "c is not placed: NoMatchingPods: no warm pod can hold this model" in done.output
    assert "1 of 3 claim(s) do not fit; 2 do, on 1 of 1 card(s)." in done.output


def test_it_ends_with_2_when_a_file_cannot_be_used_and_names_the_place(files):
    path = files(claims=yaml.safe_dump_all([manifest("a"), manifest("b", floor="0")])) / "claims.yaml"
    done = plan("-f", str(path), "--cards", "1xH20")
    assert done.exit_code == 2
    assert done.output == (
        f"error: {path}: document 2 (ModelClaim b): spec.perGPU.kvFloor is 0, which is not positive\n"
    )


def test_it_ends_with_2_when_a_file_is_not_there(tmp_path):
    done = plan("-f", str(tmp_path / "nope.yaml"), "--cards", "1xH20")
    assert (done.exit_code, done.output) == (2, f"error: {tmp_path}/nope.yaml: No such file or directory\n")


def test_it_ends_with_2_when_cards_are_unknown(files):
    done = plan("-f", str(files(claims=TWO)), "--cards", "1xH21")
    assert done.exit_code == 2
    assert "card 'H21' is neither" in done.output


def test_a_folder_is_read_in_the_order_of_names(files):
    folder = files(b=yaml.safe_dump(manifest("of-b")), a=yaml.safe_dump(manifest("of-a", "60Gi")))
    (folder / "notes.txt").write_text("no claim")
    done = plan("-f", str(folder), "--cards", "1xH20", "-o", "json")
    assert [u["name"] for u in json.loads(done.output)["unplaced"]] == ["of-b"]


def test_standard_input_and_several_files(files):
    path = files(claims=yaml.safe_dump(manifest("from-file"))) / "claims.yaml"
    done = plan("-f", "-", "-f", str(path), "--cards", "2xH20", "-o", "json", stdin=TWO)
    placed = {c["name"] for card in json.loads(done.output)["cards"] for c in card["claims"]}
    assert (done.exit_code, placed) == (0, {"a", "b", "from-file"})


def test_json_of_a_plan_that_does_not_fit_still_ends_with_1(files):
    done = plan("-f", str(files(claims=THREE)), "--cards", "H20", "-o", "json")
    assert (done.exit_code, json.loads(done.output)["fits"]) == (1, False)


def test_empty_cards_and_other_objects_are_told(files):
    done = plan("-f", str(files(claims=TWO + "---\nkind: Service\n")), "--cards", "3xH20")
    assert "Empty: h20-3" in done.output
    assert "1 object(s) of other kinds were passed over." in done.output


def test_top_needs_a_terminal_or_once_and_a_picture_needs_once():
    for arguments, told in ((["top"], "use --once"), (["top", "--svg", "x.svg"], "use it with --once")):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2
        assert told in done.output


@pytest.mark.parametrize("command", [["explain", "claim"], ["plan"], ["top"]])
def test_every_option_of_every_command_has_a_help_text(command):
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    for line in shown.output.splitlines():
        if "│ " in line and "--" in line:
            assert len(line.rstrip("│ ").split()) > 4, line

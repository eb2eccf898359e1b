"""Names, folders and address ranges of sandboxes that share a machine."""

from __future__ import annotations

import pytest

from aibrix_operator.sandbox import fleet, state
from aibrix_operator.sandbox.state import SandboxError

NODES = fleet.plan_nodes(["h20", "l40s"], None)
COMMAND = ("runtime", "{address}")


@pytest.fixture(autouse=True)
def root(monkeypatch, tmp_path):
    monkeypatch.setenv("AIBRIX_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_sandbox_is_read_back_as_it_was_made():
    made = state.create("demo", NODES, COMMAND)
    assert state.load("demo") == made
    assert state.list_sandboxes() == [made]
    assert made.node_cidr(NODES[1]) == f"127.{made.subnet}.2.0/24"
    assert made.node_address(NODES[1]) == f"127.{made.subnet}.255.2"


def test_every_sandbox_has_a_range_of_its_own_until_none_is_left(monkeypatch):
    monkeypatch.setattr(state, "SUBNETS", range(16, 19))
    made = [state.create(name, NODES, COMMAND) for name in ("a", "b", "c")]
    assert {sandbox.subnet for sandbox in made} == {16, 17, 18}
    with pytest.raises(SandboxError, match="all 3 address ranges are taken"):
        state.create("d", NODES, COMMAND)
    state.remove(made[1])
    assert state.create("d", NODES, COMMAND).subnet == made[1].subnet


def test_a_name_is_given_once():
    state.create("demo", NODES, COMMAND)
    with pytest.raises(SandboxError, match="exists already"):
        state.create("demo", NODES, COMMAND)


@pytest.mark.parametrize("name", ["", "Demo", "a/b", "-a", "a-", "..", "x" * 33])
def test_a_name_that_makes_no_folder_is_refused(name, root):
    with pytest.raises(SandboxError, match="no sandbox name"):
        state.create(name, NODES, COMMAND)
    assert not root.exists()


def _held(sandbox):
    with state.hold(sandbox.directory):
        return sandbox


def test_two_commands_do_not_work_on_one_sandbox():
    sandbox = state.create("demo", NODES, COMMAND)
    with state.hold(sandbox.directory), pytest.raises(SandboxError, match="another command is at work on 'demo'"):
        state.remove(_held(sandbox))
    with state.hold(sandbox.directory):
        assert state.load("demo") == sandbox


def test_an_unknown_sandbox_is_none():
    assert state.load("nobody") is None
    assert state.list_sandboxes() == []


def test_the_state_folder_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.delenv("AIBRIX_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state.state_root() == tmp_path / "aibrix-operator" / "sandboxes"

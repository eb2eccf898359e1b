"""What procfs tells, and that a group is signalled only when it is provably the engine's."""

import os
import signal

import pytest

from aibrix_operator.runtime import procfs
from aibrix_operator.runtime.launcher import Launcher, LaunchError, Life
from aibrix_operator.runtime.procfs import ProcessStat
from aibrix_operator.runtime.records import EngineProcess

ENGINE = EngineProcess(500, "9000")


class Machine:
    """A procfs of files; pid 1 started at tick 100 unless a test says otherwise."""

    def __init__(self, root):
        self.root = root
        self.add(1, start=100)

    def add(self, pid, *, start, parent=1, group=None, session=None, state="S", command="(sd-pam) x"):
        fields = [state, parent, group or pid, session or pid, *[0] * 15, start, 0]
        (self.root / str(pid)).mkdir()
        (self.root / str(pid) / "stat").write_text(f"{pid} ({command}) {' '.join(map(str, fields))}\n")
        return self


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def look(machine):
    return Launcher(machine.root).look(ENGINE)


def test_stat_is_read_behind_odd_command_names(machine):
    machine.add(7, start=42, parent=3, group=5, session=6, state="R", command=") R 1 (")
    assert procfs.read(7, machine.root) == ProcessStat(7, "R", 3, 5, 6, "42")
    assert procfs.read(8, machine.root) is None
    (machine.root / "8").mkdir()
    (machine.root / "8" / "stat").write_text("8 (x) S 1")
    assert procfs.read(8, machine.root) is None


def test_our_own_process_is_read():
    stat = procfs.read(os.getpid())
    assert (stat.parent, stat.group, stat.session) == (os.getppid(), os.getpgrp(), os.getsid(0))
    assert stat.is_alive


def test_a_running_leader_with_its_start_time_is_running(machine):
    assert look(machine.add(500, start=9000)) is Life.RUNNING


def test_a_leader_with_another_start_time_is_someone_else(machine):
    machine.add(500, start=9001).add(501, start=9001, group=500, session=500)
    assert look(machine) is Life.GONE


def test_nothing_there_is_gone(machine):
    assert look(machine) is Life.GONE
    assert Launcher(machine.root).look(None) is Life.GONE


def test_a_zombie_leader_without_a_group_is_gone(machine):
    assert look(machine.add(500, start=9000, state="Z")) is Life.GONE


@pytest.mark.parametrize(
    ("member", "init", "life"),
    [
        pytest.param({"start": 9005, "group": 500, "session": 500}, 100, Life.REMAINS, id="a-worker"),
        pytest.param({"start": 9000, "group": 500, "session": 500}, 100, Life.REMAINS, id="as-old-as-the-leader"),
        pytest.param({"start": 9005, "group": 500, "session": 500, "state": "Z"}, 100, Life.GONE, id="a-zombie"),
        pytest.param({"start": 9005, "group": 499, "session": 500}, 100, Life.GONE, id="another-group"),
        pytest.param({"start": 9005, "group": 500, "session": 499}, 100, Life.GONE, id="a-shells-job"),
        pytest.param({"start": 8999, "group": 500, "session": 500}, 100, Life.GONE, id="older-than-the-leader"),
        pytest.param({"start": 9005, "group": 500, "session": 500}, 9001, Life.GONE, id="after-a-container-restart"),
    ],
)
def test_a_group_without_leader_counts_only_when_it_must_be_the_engines(machine, tmp_path, member, init, life):
    (tmp_path / "1" / "stat").unlink()
    (tmp_path / "1").rmdir()
    machine.add(1, start=init).add(501, **member)
    assert look(machine) is life


def test_a_start_time_that_is_no_number_proves_nothing(machine):
    machine.add(501, start=9005, group=500, session=500)
    assert Launcher(machine.root).look(EngineProcess(500, "soon")) is Life.GONE


@pytest.mark.parametrize(
    ("pid", "belongs"),
    [(500, True), (501, True), (502, True), (503, True), (600, False), (601, False), (1, False), (999, False)],
    ids=["itself", "child", "grandchild-in-a-session-of-its-own", "orphan", "sibling", "its-child", "init", "nobody"],
)
def test_whose_a_process_is(machine, pid, belongs):
    machine.add(500, start=1).add(501, start=1, parent=500, session=500).add(502, start=1, parent=501)
    machine.add(503, start=1, parent=1, session=500).add(600, start=1).add(601, start=1, parent=600)
    assert procfs.belongs_to(pid, 500, machine.root) is belongs


def test_a_ring_of_parents_ends(machine):
    machine.add(700, start=1, parent=701).add(701, start=1, parent=700)
    assert not procfs.belongs_to(700, 500, machine.root)


def test_an_engine_leads_its_session_with_default_signals_and_no_input():
    launcher = Launcher()
    process = launcher.launch(["sleep", "60"], os.environ)
    try:
        assert (os.getsid(process.pid), os.getpgid(process.pid)) == (process.pid, process.pid)
        assert launcher.is_running(process)
        with open(f"/proc/{process.pid}/status") as status:
            masks = dict(line.split(":\t") for line in status if line.startswith(("SigIgn", "SigBlk")))
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT):
            assert not [name for name, mask in masks.items() if int(mask, 16) >> (number - 1) & 1], number.name
        assert os.readlink(f"/proc/{process.pid}/fd/0") == "/dev/null"
    finally:
        launcher.signal_group(process, signal.SIGKILL)
        os.waitpid(process.pid, 0)
    assert launcher.look(process) is Life.GONE
    launcher.signal_group(process, signal.SIGKILL)  # a group that is gone is fine


@pytest.mark.parametrize("command", ["/nonexistent", "a\0b"])
def test_what_cannot_be_started_is_said(command):
    with pytest.raises(LaunchError, match="cannot start"):
        Launcher().launch([command], os.environ)

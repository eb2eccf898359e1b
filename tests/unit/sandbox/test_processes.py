"""Processes are named for good, ended for sure, and never confused with others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from aibrix_operator.sandbox import processes
from aibrix_operator.sandbox.pod_folder import FOLDER_ENV, PodFacts, PodFolder
from aibrix_operator.sandbox.process_table import ProcessTable
from aibrix_operator.sandbox.processes import ProcessId

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"


def begin(tmp_path, *command: str, **environment: str) -> ProcessId:
    pid = processes.start(
        command, log=tmp_path / "log", environment={**os.environ, **environment}, dies_with_parent=True
    )
    process = processes.identify(pid)
    assert process is not None
    return process


def wait_for(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_ends_at_sigterm_and_is_reaped(tmp_path):
    process = begin(tmp_path, "sleep", "60")
    processes.end(process, grace_s=5)
    assert not processes.is_alive(process)
    assert not os.path.exists(f"/proc/{process.pid}")


def test_one_that_ignores_sigterm_is_killed_after_its_grace(tmp_path):
    process = begin(tmp_path, "sh", "-c", STUBBORN)
    wait_for(lambda: "up" in (tmp_path / "log").read_text())
    processes.end(process, grace_s=0.2)
    assert not processes.is_alive(process)


def test_a_number_that_was_used_again_is_not_signalled(tmp_path):
    other = begin(tmp_path, "sleep", "60")
    gone = ProcessId(other.pid, other.start_ticks - 1)
    assert not processes.is_alive(gone)
    processes.end(gone, grace_s=0)
    processes.signal_process(gone, signal.SIGKILL)
    assert processes.is_alive(other)
    processes.end(other, grace_s=5)


def test_a_child_dies_with_the_process_that_started_it(tmp_path):
    starter = (
        "import sys; from pathlib import Path; from aibrix_operator.sandbox import processes;"
        "print(processes.start(['sleep', '60'], log=Path(sys.argv[1]), dies_with_parent=True), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starter, str(tmp_path / "log")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = processes.identify(int(parent.stdout.readline()))
        assert child is not None
        parent.kill()
    wait_for(lambda: not processes.is_alive(child))


def test_the_table_keeps_what_it_was_told_also_for_another_process(tmp_path):
    process = begin(tmp_path, "sleep", "60")
    table = ProcessTable(tmp_path)
    table.add("etcd", process.pid)
    assert ProcessTable(tmp_path).read() == {"etcd": process}
    table.remove("etcd")
    assert table.read() == {}
    processes.end(process, grace_s=5)
    with pytest.raises(ProcessLookupError, match=r"etcd .*ended at once"):
        table.add("etcd", process.pid)


def test_all_processes_of_a_pod_are_ended_whatever_session_they_are_in(tmp_path):
    folder = PodFolder(tmp_path / "pod")
    folder.write_facts(PodFacts("default", "p", "u", "node-1", "127.20.1.1", (0,)))
    mark = {FOLDER_ENV: str(folder.path)}
    sidecar = begin(tmp_path, "sh", "-c", "setsid sleep 60 & exec sleep 61", **mark)
    stranger = begin(tmp_path, "sleep", "60", **{FOLDER_ENV: f"{folder.path}-other"})
    folder.write_sidecar(sidecar)
    wait_for(lambda: len(folder.processes()) == 2)

    folder.end_processes(grace_s=5)

    assert folder.processes() == []
    assert processes.is_alive(stranger)
    assert folder.facts == PodFacts("default", "p", "u", "node-1", "127.20.1.1", (0,))
    processes.end(stranger, grace_s=5)


def test_memory_counts_the_whole_session(tmp_path):
    child = "import time; y = bytearray(20 << 20); print('up', flush=True); time.sleep(60)"
    parent = f"import subprocess, sys; x = bytearray(20 << 20); subprocess.run([sys.executable, '-c', {child!r}])"
    mark = {"AIBRIX_TEST_MARK": str(tmp_path)}
    leader = begin(tmp_path, sys.executable, "-c", parent, **mark)
    wait_for(lambda: "up" in (tmp_path / "log").read_text())
    assert processes.session_memory_bytes(leader) > 40 << 20
    family = processes.find_marked(os.fsencode(f"AIBRIX_TEST_MARK={tmp_path}"))
    assert len(family) == 2
    for member in family:
        processes.end(member, grace_s=5)
    assert processes.session_memory_bytes(leader) == 0

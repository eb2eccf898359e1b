"""The supervisor starts again what ended, and takes its command with it when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from aibrix_operator.sandbox import processes


@pytest.fixture
def supervised(tmp_path):
    """A supervisor of a command that appends its pid to a file, and a way to wait for the nth of them."""
    pids = tmp_path / "pids"
    pids.touch()
    command = ["sh", "-c", f"echo $$ >> {pids}; exec sleep 60"]
    supervisor = subprocess.Popen([sys.executable, "-m", "aibrix_operator.sandbox.supervisor", *command])

    def nth(number: int) -> processes.ProcessId:
        deadline = time.monotonic() + 15
        while len(started := pids.read_text().split()) < number:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process = processes.identify(int(started[number - 1]))
        assert process is not None
        return process

    yield supervisor, nth
    supervisor.kill()
    supervisor.wait()


def test_a_command_that_was_killed_is_started_again(supervised):
    _, nth = supervised
    os.kill(nth(1).pid, signal.SIGKILL)
    assert processes.is_alive(nth(2))


def test_sigterm_ends_the_command_and_then_the_supervisor(supervised):
    supervisor, nth = supervised
    command = nth(1)
    supervisor.terminate()
    assert supervisor.wait(10) == 0
    assert not processes.is_alive(command)


def test_a_killed_supervisor_takes_its_command_along(supervised):
    supervisor, nth = supervised
    command = nth(1)
    supervisor.kill()
    supervisor.wait(10)
    assert processes.wait_gone(command, time.monotonic() + 10)

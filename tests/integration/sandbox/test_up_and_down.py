"""Whole sandboxes: side by side, after a crash, and gone without a trace."""

from __future__ import annotations

import os
import signal

import pytest
from sandbox_probes import ask, both_ready, eventually, new_name, options, processes_about, ready_pods

from aibrix_operator.sandbox import operators, processes, readiness, state, up
from aibrix_operator.sandbox.state import SandboxError

pytestmark = pytest.mark.integration


def test_two_sandboxes_side_by_side_and_one_down_leaves_the_other(tiny_sandbox, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there: whoever asks it fails
    second = up.up(new_name(), options(nodes=1))
    everything = [*second.table.read().values(), *processes_about(second.directory)]
    (pod,) = ready_pods(second)
    ask(pod.address, "/start")
    assert second.subnet != tiny_sandbox.subnet

    up.down(second.name)

    assert not any(map(processes.is_alive, everything))
    assert processes_about(second.directory) == []
    assert not second.directory.exists()
    assert state.load(second.name) is None
    assert both_ready(tiny_sandbox)


@pytest.fixture
def name():
    """A name under which nothing is left running, also when the test fails half-way."""
    chosen = new_name()
    yield chosen
    if state.load(chosen) is not None:
        up.down(chosen)


def test_up_again_cleans_what_a_crash_left(name):
    crashed = up.up(name, options())
    (pod,) = ready_pods(crashed)
    engine = processes.identify(ask(pod.address, "/start")["pid"])
    left = crashed.table.read()
    for victim in ("agent", "kube-apiserver"):
        os.kill(left[victim].pid, signal.SIGKILL)
    eventually(lambda: not processes.is_alive(left["agent"]) and not processes.is_alive(left["kube-apiserver"]))
    assert up.status(name).pods is None
    assert engine is not None
    assert processes.is_alive(engine)

    again = up.up(name, options())

    assert not processes.is_alive(engine)
    assert not any(map(processes.is_alive, left.values()))
    assert len(ready_pods(again)) == 1


def test_what_never_gets_ready_is_told_with_its_last_words_and_leaves_nothing(monkeypatch, name):
    monkeypatch.setattr(readiness, "WITHIN_S", 6.0)
    monkeypatch.setattr(operators, "operator_command", lambda *_: ["sh", "-c", "echo no licence; exit 1"])

    with pytest.raises(SandboxError, match="not ready after 6 s") as failure:
        up.up(name, up.Options(runtime_command=("/no/such/runtime",)))

    assert "the operator does not answer" in str(failure.value)
    assert "no licence" in str(failure.value)
    assert "0 of 1 warm Pods are ready" in str(failure.value)
    assert "No such file or directory: '/no/such/runtime'" in str(failure.value)
    assert state.load(name) is None
    assert processes_about(state.state_root() / name) == []


def test_a_second_up_of_a_running_sandbox_is_refused(tiny_sandbox):
    with pytest.raises(SandboxError, match=f"{tiny_sandbox.name!r} is up already"):
        up.up(tiny_sandbox.name, options())


def test_down_of_an_unknown_name_says_which_there_are(tiny_sandbox):
    with pytest.raises(SandboxError, match=rf"no sandbox 'nobody' \(known: .*{tiny_sandbox.name}"):
        up.down("nobody")

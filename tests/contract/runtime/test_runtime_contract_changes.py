"""The change feed of a sidecar in a process of its own, and upstream's answer where it has none.

Bounds are generous, for busy machines; what was measured stands in ``docs/runtime.md``.
"""

import os
import signal
import threading
import time

import pytest
from sidecar_process import until

BOUND_S = 10.0
"""Half of what a poll waits for when nothing is new."""
POLLS = 50


def changes(sidecar, since, timeout_s=20):
    answer = sidecar.get(f"/v1/runtime/changes?since={since}&timeout={timeout_s}")
    assert answer.status == 200, answer.text
    return answer.body


def follow(sidecar, model, holds, heard=lambda: None):
    """Wait at the feed until the model's state is as wanted; the state, when it was told, and the version.

    ``heard`` is called after each answer.
    """
    version = ""
    while True:
        told = changes(sidecar, version)
        heard()
        state = next((state for state in told["snapshot"]["models"] if state["model_name"] == model), None)
        if holds(state):
            return state, time.monotonic(), told["version"]
        assert told["version"] != version, f"nothing new within the poll's time: {state}"
        version = told["version"]


class Following(threading.Thread):
    """Follows the feed beside the test, which goes on when the first answer is there: what comes then is not missed."""

    def __init__(self, sidecar, model, holds):
        super().__init__(daemon=True)
        self.arguments, self.result = (sidecar, model, holds), None
        self.follows = threading.Event()
        self.start()
        assert self.follows.wait(30)

    def run(self):
        self.result = follow(*self.arguments, self.follows.set)

    def finish(self):
        self.join(30)
        assert self.result is not None
        return self.result


def test_upstream_says_that_it_has_no_feed_and_ours_answers_at_once(sidecar):
    answer = sidecar.get("/v1/runtime/changes?since=&timeout=0")
    if sidecar.kind == "upstream":
        assert (answer.status, answer.body) == (404, {"detail": "Not Found"})
        return
    assert set(answer.body) == {"version", "snapshot"}
    assert set(answer.body["snapshot"]) == set(sidecar.snapshot())


@pytest.mark.only("ours")
def test_a_booting_engine_is_told_ready_as_it_becomes_so(sidecar, model):
    assert sidecar.activate(model).status == 200
    state, told_s, _ = follow(sidecar, model, lambda state: state and state["ready"])
    assert state["alive"]
    pid = sidecar.record(model)["pid"]
    assert pid > 0
    until(lambda: sidecar.is_in(model, "active"), "the phase follows")
    assert time.monotonic() - told_s < BOUND_S


@pytest.mark.only("ours")
def test_a_killed_engine_is_told_dead(sidecar, model):
    sidecar.serve(model)
    dead = Following(sidecar, model, lambda state: state and not state["alive"])
    pid = sidecar.record(model)["pid"]
    killed_s = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    state, told_s, _ = dead.finish()
    assert not state["ready"]
    assert told_s - killed_s < BOUND_S


@pytest.mark.only("ours")
def test_asleep_awake_and_gone_are_told(sidecar, model):
    sidecar.serve(model)
    asleep = Following(sidecar, model, lambda state: state and state["phase"] == "sleeping")
    assert sidecar.post("sleep", model_name=model, level=1, operation_id="s").status == 200
    assert asleep.finish()[0]["sleeping_footprint_bytes"]
    awake = Following(sidecar, model, lambda state: state and state["phase"] == "active" and state["ready"])
    assert sidecar.post("wake", model_name=model, operation_id="w").status == 200
    awake.finish()
    gone = Following(sidecar, model, lambda state: state is None)
    assert sidecar.post("deactivate", model_name=model).status == 200
    gone.finish()


@pytest.mark.only("ours")
def test_a_restarted_sidecar_answers_at_once(sidecar, model):
    sidecar.serve(model)
    version = changes(sidecar, "")["version"]
    sidecar.kill()
    sidecar.start()
    asked_s = time.monotonic()
    told = changes(sidecar, version)
    assert time.monotonic() - asked_s < BOUND_S
    assert told["version"] != version


@pytest.mark.only("ours")
def test_fifty_callers_wait_at_once_and_are_all_told(sidecar, model):
    sidecar.serve(model)
    dead = [Following(sidecar, model, lambda state: state and not state["alive"]) for _ in range(POLLS)]
    pid = sidecar.record(model)["pid"]
    killed_s = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert max(each.finish()[1] for each in dead) - killed_s < 1.5 * BOUND_S

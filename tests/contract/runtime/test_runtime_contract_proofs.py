"""Sleeps that cut nobody off, and what only our sidecar does: proofs by the engine's own word, and SGLang's sleep."""

import http.client
import json
import threading
import time

import pytest
from sidecar_process import ASLEEP_BYTES, AWAKE_BYTES, ipc_name, until
from test_runtime_contract_operations import operation, segment_of

TOKENS = 500
EVENTS = TOKENS + 2  # role, tokens, [DONE]


class Stream(threading.Thread):
    """A chat that streams ``TOKENS`` tokens over some seconds."""

    def __init__(self, sidecar, model):
        super().__init__(daemon=True)
        self.port, self.model, self.events = sidecar.record(model)["port"], model, []
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        message = {"role": "user", "content": "hi"}
        body = {"model": self.model, "messages": [message], "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b"data: "):
                self.events.append(line)
        connection.close()

    def finish(self):
        self.join(30)
        return self.events


def engine_call(sidecar, model, method, path):
    connection = http.client.HTTPConnection("127.0.0.1", sidecar.record(model)["port"], timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def sleep(sidecar, model, operation_id="s"):
    return sidecar.post("sleep", model_name=model, level=1, operation_id=operation_id)


def wake(sidecar, model, operation_id="w"):
    return sidecar.post("wake", model_name=model, operation_id=operation_id)


def test_a_stream_that_runs_when_a_sleep_is_asked_for_comes_whole(sidecar, served):
    stream = Stream(sidecar, served)
    until(lambda: len(stream.events) > 10, "tokens come")
    started = time.monotonic()
    answer = sleep(sidecar, served, "streaming-s")
    assert (answer.status, answer.body) == (
        409,
        {"detail": f"model {served} is still serving requests, so it is not put to sleep"},
    )
    assert time.monotonic() - started < 5
    events = stream.finish()
    assert (len(events), events[-1].strip()) == (EVENTS, b"data: [DONE]")
    assert engine_call(sidecar, served, "GET", "/is_sleeping") == 200
    assert sidecar.is_in(served, "active")


@pytest.mark.only("ours")
def test_an_sglang_stream_that_runs_when_a_sleep_is_asked_for_comes_whole(sidecar, model):
    sidecar.serve(model, engine="sglang")
    stream = Stream(sidecar, model)
    until(lambda: len(stream.events) > 10, "tokens come")
    assert sleep(sidecar, model).status == 409
    events = stream.finish()
    assert (len(events), events[-1].strip()) == (EVENTS, b"data: [DONE]")
    assert sleep(sidecar, model).body["applied"] is True


@pytest.mark.only("ours")
def test_sglang_sleeps_and_wakes_like_vllm(sidecar, model):
    sidecar.serve(model, engine="sglang")
    assert sidecar.state(model)["can_sleep"] is True
    answer = sleep(sidecar, model)
    assert (answer.status, answer.body) == (200, operation(model, "s", applied=True, phase="sleeping"))
    state = sidecar.state(model)
    told = ("phase", "ready", "alive", "sleeping_footprint_bytes", "hbm_peak_bytes", "kv_used_bytes")
    assert [state[key] for key in told] == ["sleeping", False, True, ASLEEP_BYTES, ASLEEP_BYTES, 0]
    assert segment_of(sidecar, model)[1:] == (0, 0)
    assert sleep(sidecar, model, "s2").body["applied"] is False
    pid = sidecar.record(model)["pid"]
    awake = wake(sidecar, model)
    assert (awake.status, awake.body) == (200, operation(model, "w", applied=True, phase="booting"))
    assert sidecar.state(model)["hbm_peak_bytes"] == AWAKE_BYTES
    until(lambda: sidecar.is_in(model, "active"), "it serves again")
    assert wake(sidecar, model, "w2").body["applied"] is False
    assert len(Stream(sidecar, model).finish()) == EVENTS
    assert sidecar.record(model)["pid"] == pid


@pytest.mark.only("ours")
def test_an_engine_that_somebody_puts_to_sleep_or_wakes_directly_is_shown_as_it_says(sidecar, model):
    sidecar.serve(model)
    assert engine_call(sidecar, model, "POST", "/sleep?level=1") == 200
    until(lambda: sidecar.is_in(model, "sleeping"), "the engine's word is taken")
    state = sidecar.state(model)
    assert (state["ready"], state["sleeping_footprint_bytes"]) == (False, None)
    assert engine_call(sidecar, model, "POST", "/wake_up") == 200
    until(lambda: sidecar.is_in(model, "active") and sidecar.state(model)["ready"], "the engine's word is taken")


@pytest.mark.only("ours")
def test_the_next_sidecar_believes_the_engines_and_not_the_registry(sidecar, model):
    woken, slept = model, f"{model}-slept"
    for name in (woken, slept):
        sidecar.serve(name)
    sleep(sidecar, woken)
    sidecar.kill()
    assert engine_call(sidecar, woken, "POST", "/wake_up") == 200
    assert engine_call(sidecar, slept, "POST", "/sleep?level=1") == 200
    sidecar.start()
    assert [sidecar.state(name)["phase"] for name in (woken, slept)] == ["active", "sleeping"]
    assert [sidecar.state(name)["sleeping_footprint_bytes"] for name in (woken, slept)] == [None, None]
    sidecar.stop(slept)


@pytest.mark.only("ours")
def test_the_segments_limit_outlives_an_sglang_sleep(sidecar, model):
    sidecar.serve(model, engine="sglang")
    sidecar.post("kv-limit", model_name=model, limit_bytes=1 << 30, operation_id="k")
    sleep(sidecar, model)
    wake(sidecar, model)
    assert segment_of(sidecar, model)[0] == 1 << 30
    assert (sidecar.segments / ipc_name(model)).exists()

"""KV limits, sleep and wake, as a client sees them."""

import fcntl
import json
import struct
import threading
import urllib.request

import pytest
from sidecar_process import ASLEEP_BYTES, GIB, ipc_name, until

from aibrix_operator.sim import card


def segment_of(sidecar, model):
    return struct.unpack("<qqq", (sidecar.segments / ipc_name(model)).read_bytes()[:24])


def operation(model, operation_id, *, applied, phase):
    return {
        "status": "success",
        "model_name": model,
        "operation_id": operation_id,
        "applied": applied,
        "phase": phase,
    }


@pytest.mark.parametrize(
    ("action", "more"), [("kv-limit", {"limit_bytes": 1}), ("sleep", {"level": 1}), ("wake", {})], ids=lambda v: str(v)
)
def test_operations_on_an_unknown_model_are_not_found(sidecar, action, more):
    answer = sidecar.post(action, model_name="nobody", operation_id="x", **more)
    assert (answer.status, answer.body) == (404, {"detail": "model 'nobody' is not active"})


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("kv-limit", {"limit_bytes": -1, "operation_id": "x"}),
        ("kv-limit", {"limit_bytes": 1, "operation_id": ""}),
        ("kv-limit", {"limit_bytes": 1.5, "operation_id": "x"}),
        ("sleep", {"level": 0, "operation_id": "x"}),
        ("sleep", {"level": 3, "operation_id": "x"}),
        ("wake", {}),
    ],
    ids=str,
)
def test_operations_out_of_bounds_are_unprocessable(sidecar, action, more):
    assert sidecar.post(action, model_name="nobody", **more).status == 422


def test_kv_limit_is_written_once_per_operation(sidecar, served):
    answer = sidecar.post("kv-limit", model_name=served, limit_bytes=GIB, operation_id="once-a")
    assert (answer.status, answer.body) == (200, operation(served, "once-a", applied=True, phase="active"))
    assert segment_of(sidecar, served)[0] == GIB
    assert sidecar.state(served)["kv_capacity_bytes"] == GIB
    again = sidecar.post("kv-limit", model_name=served, limit_bytes=2 * GIB, operation_id="once-a")
    assert (again.status, again.body) == (200, operation(served, "once-a", applied=False, phase="active"))
    assert segment_of(sidecar, served)[0] == GIB


def test_kv_limit_without_a_segment_is_called_applied_and_reads_unknown(sidecar, model):
    sidecar.serve(model)
    (sidecar.segments / ipc_name(model)).unlink()
    answer = sidecar.post("kv-limit", model_name=model, limit_bytes=GIB, operation_id="a")
    assert (answer.status, answer.body["applied"]) == (200, True)
    state = sidecar.state(model)
    assert (state["kv_used_bytes"], state["kv_capacity_bytes"]) == (-1, -1)
    (entry,) = [entry for entry in sidecar.get("/v1/runtime/models").body["models"] if entry["model_name"] == model]
    assert (entry["kv_used_bytes"], entry["kv_total_bytes"]) == (0, 0)


def test_kv_limit_of_a_locked_segment_is_a_bare_error_and_is_not_remembered(sidecar, served):
    with (sidecar.segments / ipc_name(served)).open("rb") as segment:
        fcntl.flock(segment, fcntl.LOCK_EX)
        answer = sidecar.post("kv-limit", model_name=served, limit_bytes=GIB, operation_id="locked-a")
        assert (answer.status, answer.text) == (500, "Internal Server Error")
        assert answer.headers["content-type"].startswith("text/plain")
    again = sidecar.post("kv-limit", model_name=served, limit_bytes=GIB, operation_id="locked-a")
    assert (again.status, again.body["applied"]) == (200, True)


def test_sleep_and_wake_change_phase_and_footprint(sidecar, served):
    asleep = sidecar.post("sleep", model_name=served, level=1, operation_id="cycle-s")
    assert (asleep.status, asleep.body) == (200, operation(served, "cycle-s", applied=True, phase="sleeping"))
    state = sidecar.state(served)
    assert {key: state[key] for key in ("phase", "ready", "alive", "sleeping_footprint_bytes", "hbm_peak_bytes")} == {
        "phase": "sleeping",
        "ready": False,
        "alive": True,
        "sleeping_footprint_bytes": ASLEEP_BYTES,
        "hbm_peak_bytes": ASLEEP_BYTES,
    }
    assert (state["request_metrics_observed"], state["request_success_total"]) == (False, None)
    for operation_id in ("cycle-s", "other"):
        again = sidecar.post("sleep", model_name=served, level=1, operation_id=operation_id)
        assert (again.status, again.body) == (200, operation(served, operation_id, applied=False, phase="sleeping"))
    awake = sidecar.post("wake", model_name=served, operation_id="cycle-w")
    assert (awake.status, awake.body) == (200, operation(served, "cycle-w", applied=True, phase="booting"))
    assert sidecar.state(served)["sleeping_footprint_bytes"] is None
    until(lambda: sidecar.is_in(served, "active"), "it serves again")
    again = sidecar.post("wake", model_name=served, operation_id="cycle-w2")
    assert (again.status, again.body) == (200, operation(served, "cycle-w2", applied=False, phase="active"))


def test_an_operation_id_is_spent_over_a_later_sleep_too(sidecar, served):
    sidecar.post("sleep", model_name=served, level=1, operation_id="spent-s1")
    sidecar.post("wake", model_name=served, operation_id="spent-w1")
    sidecar.post("sleep", model_name=served, level=2, operation_id="spent-s2")
    again = sidecar.post("wake", model_name=served, operation_id="spent-w1")
    assert again.body == operation(served, "spent-w1", applied=False, phase="sleeping")


def test_engine_that_is_serving_is_not_put_to_sleep(sidecar, served):
    port = sidecar.record(served)["port"]
    before = sidecar.state(served)["request_success_total"]
    body = {"model": served, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 400, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    statuses = []

    def ask():
        with urllib.request.urlopen(request) as answer:
            statuses.append(answer.status)

    client = threading.Thread(target=ask)
    client.start()
    until(lambda: sidecar.state(served)["requests_running"] == 1, "the request is seen running")
    answer = sidecar.post("sleep", model_name=served, level=1, operation_id="busy-s")
    assert answer.status == 409
    assert answer.body == {"detail": f"model {served} is still serving requests, so it is not put to sleep"}
    client.join(20)
    assert statuses == [200]
    until(lambda: sidecar.state(served)["request_success_total"] == before + 1, "the request is counted")
    assert sidecar.post("sleep", model_name=served, level=1, operation_id="busy-s").body["applied"] is True


@pytest.mark.parametrize(
    "engine", ["other", pytest.param("sglang", marks=pytest.mark.only("upstream"))]
)  # ours puts SGLang to sleep: test_runtime_contract_proofs.py
@pytest.mark.parametrize(("action", "more"), [("sleep", {"level": 1}), ("wake", {})], ids=["sleep", "wake"])
def test_other_engine_kinds_do_not_sleep(sidecar, model, engine, action, more):
    name = f"{model}-{engine}-{action}"
    sidecar.activate(name, engine=engine)
    answer = sidecar.post(action, model_name=name, operation_id="x", **more)
    assert (answer.status, answer.body) == (409, {"detail": f"{action} is unsupported for engine '{engine}'"})
    sidecar.stop(name)


def test_wake_that_the_engine_fails_is_a_refusal_with_a_body(sidecar, model):
    sidecar.serve(model)
    sidecar.post("sleep", model_name=model, level=1, operation_id="s")
    free = card.free_bytes(sidecar.cards, sidecar.card.uuid)
    card.hold(sidecar.cards, sidecar.card.uuid, footprint_bytes=free)
    try:
        answer = sidecar.post("wake", model_name=model, operation_id="w")
    finally:
        card.release(sidecar.cards, sidecar.card.uuid)
    assert answer.status == 500
    assert set(answer.body) == {"status", "model_name", "message"}
    assert (answer.body["status"], answer.body["model_name"]) == ("error", model)


def test_sleep_that_finds_no_engine_is_a_bare_error(sidecar, model):
    sidecar.activate(model, engine_config={"args": {"--max-model-len": "not-a-number"}})
    until(lambda: not sidecar.state(model)["alive"], "the engine refused its command line")
    answer = sidecar.post("sleep", model_name=model, level=1, operation_id="s")
    assert (answer.status, answer.text) == (500, "Internal Server Error")

"""Starting and stopping engines, as a client sees it."""

import json
import os
from pathlib import Path

import pytest
from sidecar_process import AWAKE_BYTES, ipc_name, until

from aibrix_operator.runtime import procfs
from aibrix_operator.runtime_api import wire

CLAIM = {"namespace": "default", "name": "a", "uid": "7f0c"}


def test_probes_answer(sidecar):
    assert (sidecar.get("/healthz").status, sidecar.get("/healthz").body) == (200, {"status": "ok"})
    assert (sidecar.get("/ready").status, sidecar.get("/ready").body) == (200, {"status": "ready"})


def test_metrics_live_behind_a_redirect(sidecar):
    answer = sidecar.get("/metrics")
    assert answer.status == 307
    assert answer.headers["location"].endswith("/metrics/")


def test_activate_answers_port_and_segment_before_the_engine_is_ready(sidecar, model):
    answer = sidecar.activate(model, claim_ref=CLAIM, ipc_name=None, port=0)
    assert answer.status == 200
    assert set(answer.body) == {"status", "model_name", "port", "ipc_name", "message"}
    assert (answer.body["status"], answer.body["model_name"], answer.body["message"]) == ("success", model, None)
    assert answer.body["port"] in sidecar.ports
    assert answer.body["ipc_name"] == ipc_name(model)
    assert sidecar.state(model)["claim_ref"] == CLAIM


def test_activate_again_returns_the_first_engine_whatever_it_says(sidecar, model):
    first = sidecar.activate(model, ipc_name="own name!")
    again = sidecar.activate(model, ipc_name="other", artifact_url="hf://else/where", engine="sglang", port=1)
    assert (again.status, again.body) == (200, first.body)
    assert first.body["ipc_name"] == "own-name-"
    (sidecar.segments / "own-name-").unlink(missing_ok=True)


def test_a_given_port_is_used(sidecar, model):
    port = sidecar.ports[-7]
    assert sidecar.activate(model, port=port).body["port"] == port


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(
            {"--gpu-memory-utilization": "0.45"},
            "--gpu-memory-utilization is incompatible with kvcached; use the pool KV policy instead",
            id="a-share-of-the-card",
        ),
        pytest.param(
            {"--tensor-parallel-size": ""}, "--tensor-parallel-size must be a positive integer", id="empty-size"
        ),
        pytest.param(
            {"--pipeline-parallel-size": "x"}, "--pipeline-parallel-size must be a positive integer", id="no-number"
        ),
        pytest.param(
            {"--data-parallel-size": "0"}, "--data-parallel-size must be a positive integer", id="not-positive"
        ),
        pytest.param(
            {"--data-parallel-size": "2"},
            "--data-parallel-size=2 is unsupported by fixed topology pools",
            id="replicas",
        ),
        pytest.param(
            {"--tensor-parallel-size": "2"}, "vLLM parallelism 2 must equal 1 GPU(s) visible to runtime", id="too-wide"
        ),
    ],
)
def test_flags_that_the_pod_cannot_run_are_refused(sidecar, model, args, message):
    answer = sidecar.activate(model, engine_config={"args": args})
    assert answer.status == 400
    assert answer.body == {"status": "error", "model_name": model, "port": 0, "ipc_name": "", "message": message}
    assert sidecar.state(model) is None


def test_flags_are_checked_before_the_engine_is_looked_up(sidecar, served):
    answer = sidecar.activate(served, engine_config={"args": {"--data-parallel-size": "2"}})
    assert answer.status == 400


def test_legacy_flags_are_checked_too(sidecar, model):
    assert sidecar.activate(model, additional_config={"engine-arg:--data-parallel-size": "2"}).status == 400


def test_another_engine_kind_is_not_checked(sidecar, model):
    assert sidecar.activate(model, engine="sglang", engine_config={"args": {"--data-parallel-size": "2"}}).status == 200


@pytest.mark.parametrize(
    ("body", "kind", "where"),
    [
        pytest.param({"model_name": "m", "artifact_url": "x", "gpu": 1}, "extra_forbidden", "gpu", id="unknown-field"),
        pytest.param({"artifact_url": "x"}, "missing", "model_name", id="missing-field"),
        pytest.param({"model_name": [], "artifact_url": "x"}, "string_type", "model_name", id="wrong-type"),
    ],
)
def test_bodies_that_are_not_as_documented_are_unprocessable(sidecar, body, kind, where):
    answer = sidecar.call("POST", "/v1/runtime/models/activate", body)
    assert answer.status == 422
    (fault,) = answer.body["detail"]
    assert {"type", "loc", "msg", "input"} <= set(fault)
    assert (fault["type"], fault["loc"]) == (kind, ["body", where])


def test_engine_gets_the_documented_command_line_and_environment(sidecar, served):
    record = sidecar.record(served)
    words = Path(f"/proc/{record['pid']}/cmdline").read_text().rstrip("\0").split("\0")
    host = "127.0.0.1" if sidecar.kind == "ours" else "0.0.0.0"
    assert words[words.index("vllm") + 1 :] == [
        *("--model", f"org/{served}", "--served-model-name", served, "--host", host, "--port", str(record["port"])),
        *("--enable-sleep-mode", "--max-model-len", "2048", "--enable-prefix-caching", "--max-num-seqs", "8"),
    ]
    pid = record["pid"]
    environment = dict(word.split("=", 1) for word in Path(f"/proc/{pid}/environ").read_text().split("\0") if word)
    assert {
        "ENABLE_KVCACHED": "true",
        "KVCACHED_AUTOPATCH": "1",
        "KVCACHED_IPC_NAME": ipc_name(served),
        "VLLM_SERVER_DEV_MODE": "1",
    }.items() <= environment.items()
    assert (os.getpgid(pid), os.getsid(pid)) == (pid, pid)


def test_snapshot_has_every_documented_field_and_our_models_read_it(sidecar, served):
    snapshot = until(lambda: _measured(sidecar, served), "a snapshot that missed no reading of the engine")
    assert set(snapshot) == {"observed_at", "accelerators", "models", "cached_artifacts"}
    (accelerator,) = snapshot["accelerators"]
    assert set(accelerator) == set(wire.Accelerator.model_fields)
    assert (accelerator["id"], accelerator["hbm_usable_bytes"]) == (sidecar.card.uuid, sidecar.card.usable_bytes)
    told = set(wire.ModelState.model_fields) - (set() if sidecar.kind == "ours" else {"can_sleep"})
    assert all(set(state) == told for state in snapshot["models"])
    state = next(state for state in wire.Snapshot.model_validate(snapshot).models if state.model_name == served)
    assert state == wire.ModelState(
        model_name=served,
        artifact_url=f"hf://org/{served}",
        claim_ref=wire.ClaimRef(**CLAIM),
        port=sidecar.record(served)["port"],
        ipc_name=ipc_name(served),
        phase=wire.EnginePhase.ACTIVE,
        ready=True,
        last_transition=state.last_transition,
        kv_used_bytes=0,
        kv_capacity_bytes=state.kv_capacity_bytes,
        hbm_peak_bytes=AWAKE_BYTES,
        request_metrics_observed=True,
        request_success_total=state.request_success_total,
        can_sleep=True if sidecar.kind == "ours" else None,
    )
    assert state.last_transition is not None
    assert state.kv_capacity_bytes > 0
    assert state.request_success_total is not None


def _measured(sidecar, model):
    """A snapshot; None when the engine did not answer in the half second that it is given, on a busy machine."""
    snapshot = sidecar.snapshot()
    (state,) = (state for state in snapshot["models"] if state["model_name"] == model)
    return snapshot if state["ready"] and state["request_metrics_observed"] else None


def test_list_shows_the_engine_in_short(sidecar, served):
    state = sidecar.state(served)
    (entry,) = [entry for entry in sidecar.get("/v1/runtime/models").body["models"] if entry["model_name"] == served]
    assert entry == {
        "model_name": served,
        "port": state["port"],
        "ipc_name": ipc_name(served),
        "phase": "active",
        "ready": True,
        "kv_used_bytes": 0,
        "kv_total_bytes": state["kv_capacity_bytes"],
    }


def test_stopped_engine_is_listed_until_its_process_is_gone_and_its_weights_are_remembered(sidecar, model):
    sidecar.activate(model)
    pid = sidecar.record(model)["pid"]
    answer = sidecar.post("deactivate", model_name=model)
    assert (answer.status, answer.body) == (200, {"status": "success"})
    until(lambda: sidecar.state(model) is None, "the record is dropped")
    assert procfs.read(pid) is None or not procfs.read(pid).is_alive
    assert f"hf://org/{model}" in sidecar.snapshot()["cached_artifacts"]
    marker = sidecar.weight_cache / ".aibrix/served" / f"{model}.json"
    assert json.loads(marker.read_text()) == {"model_name": model, "artifact_url": f"hf://org/{model}"}


def test_deactivate_of_an_unknown_model_is_fine(sidecar):
    answer = sidecar.post("deactivate", model_name="nobody", mode="drain")
    assert (answer.status, answer.body) == (200, {"status": "success"})

"""What survives a dead engine and a dead sidecar, as a client sees it."""

import json
import os
import signal
import stat

from sidecar_process import ASLEEP_BYTES, SERVED, ipc_name, until

from aibrix_operator.runtime import procfs


def test_registry_is_as_documented(sidecar, served):
    sidecar.post("sleep", model_name=served, level=1, operation_id="registry-s")
    record = sidecar.record(served)
    text = sidecar.registry.read_text()
    assert text == json.dumps({"engines": sidecar.records(), "version": 1}, separators=(",", ":"), sort_keys=True)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (sidecar.registry, sidecar.registry.parent)]
    assert modes == [0o600, 0o700]
    assert record == {
        "additional_config": SERVED["additional_config"],
        "artifact_url": f"hf://org/{served}",
        "claim_ref": SERVED["claim_ref"],
        "engine": "vllm",
        "engine_config": SERVED["engine_config"],
        "ipc_name": ipc_name(served),
        "last_error": None,
        "last_transition": record["last_transition"],
        "model_name": served,
        "next_restart_at": None,
        "phase": "sleeping",
        "pid": record["pid"],
        "pid_start_time": procfs.read(record["pid"]).start_ticks,
        "port": sidecar.state(served)["port"],
        "restart_count": 0,
        "sleeping_footprint_bytes": ASLEEP_BYTES,
    }
    assert record["last_transition"].endswith("+00:00")


def test_dead_engine_comes_back_on_its_port_and_segment(sidecar, model):
    started = sidecar.serve(model)
    sidecar.post("kv-limit", model_name=model, limit_bytes=1 << 30, operation_id="k")
    pid = sidecar.record(model)["pid"]
    os.kill(pid, signal.SIGKILL)
    dead = until(lambda: not (state := sidecar.state(model))["alive"] and state, "it is seen dead")
    assert dead["ready"] is False
    restarting = until(lambda: (state := sidecar.state(model))["phase"] == "restarting" and state, "a restart is due")
    assert (restarting["restart_count"], restarting["last_error"], restarting["alive"]) == (1, "engine exited", False)
    assert (restarting["kv_capacity_bytes"], restarting["request_metrics_observed"]) == (1 << 30, False)
    until(lambda: sidecar.is_in(model, "active"), "it is back")
    back = sidecar.state(model)
    assert (back["port"], back["ipc_name"], back["restart_count"], back["last_error"]) == (
        started["port"],
        started["ipc_name"],
        1,
        None,
    )
    assert back["kv_capacity_bytes"] == 4 << 30  # the engine rebuilt its segment with its own default
    assert sidecar.record(model)["pid"] != pid
    again = sidecar.post("kv-limit", model_name=model, limit_bytes=1 << 30, operation_id="k")
    assert again.body["applied"] is False  # ids are kept over an engine's restart


def test_killed_sidecar_finds_its_engines_again(sidecar, model):
    awake, asleep = model, f"{model}-asleep"
    before = {name: sidecar.serve(name) for name in (awake, asleep)}
    sidecar.post("sleep", model_name=asleep, level=1, operation_id="s")
    pids = {name: sidecar.record(name)["pid"] for name in before}
    sidecar.kill()
    sidecar.start()
    assert {name: sidecar.record(name)["pid"] for name in before} == pids
    for name, phase in ((awake, "active"), (asleep, "sleeping")):
        state = sidecar.state(name)
        assert (state["phase"], state["port"], state["ipc_name"], state["alive"]) == (
            phase,
            before[name]["port"],
            before[name]["ipc_name"],
            True,
        )
    assert sidecar.state(asleep)["sleeping_footprint_bytes"] == ASLEEP_BYTES
    assert sidecar.metrics()['aibrix:modelclaim_engine_re_adoptions_total{result="success"}'] >= 2
    forgotten = sidecar.post("sleep", model_name=awake, level=1, operation_id="s")
    assert forgotten.body["applied"] is True  # operation ids are the lost sidecar's
    sidecar.stop(asleep)


def test_engine_that_died_with_its_sidecar_is_restarted(sidecar, model):
    sidecar.serve(model)
    pid = sidecar.record(model)["pid"]
    sidecar.kill()
    os.killpg(pid, signal.SIGKILL)
    sidecar.start()
    state = sidecar.state(model)
    assert (state["phase"], state["restart_count"], state["alive"]) == ("restarting", 1, False)
    assert sidecar.metrics()['aibrix:modelclaim_engine_re_adoptions_total{result="restart_scheduled"}'] >= 1
    until(lambda: sidecar.is_in(model, "active"), "it is back")


def test_metrics_carry_the_documented_names(sidecar, model):
    sidecar.serve(model)
    sidecar.post("kv-limit", model_name=model, limit_bytes=1 << 30, operation_id="k")
    sidecar.post("kv-limit", model_name=model, limit_bytes=1 << 30, operation_id="k")
    sidecar.post("sleep", model_name=model, level=1, operation_id="s")
    sidecar.post("wake", model_name="nobody", operation_id="w")
    samples = sidecar.metrics()
    ours = {key.removeprefix("aibrix:modelclaim_"): value for key, value in samples.items() if model in key}
    duration = ours.pop(f'lifecycle_operation_duration_seconds_sum{{action="sleep",model="{model}",result="applied"}}')
    assert duration > 0
    assert ours == {
        f'kv_used_bytes{{model="{model}"}}': 0,
        f'kv_total_bytes{{model="{model}"}}': 1 << 30,
        f'hbm_peak_bytes{{model="{model}"}}': ASLEEP_BYTES,
        f'sleeping_footprint_bytes{{model="{model}"}}': ASLEEP_BYTES,
        f'kv_limit_requested_bytes{{model="{model}"}}': 1 << 30,
        f'kv_limit_applied_bytes{{model="{model}"}}': 1 << 30,
        f'kv_limit_operations_total{{model="{model}",result="applied"}}': 1,
        f'kv_limit_operations_total{{model="{model}",result="skipped"}}': 1,
        f'lifecycle_operations_total{{action="sleep",model="{model}",result="applied"}}': 1,
        f'lifecycle_operation_duration_seconds_count{{action="sleep",model="{model}",result="applied"}}': 1,
    }
    labels = ("success", "restart_scheduled", "stopping", "removed", "terminal", "duplicate", "invalid")
    assert all(f'aibrix:modelclaim_engine_re_adoptions_total{{result="{label}"}}' in samples for label in labels)
    assert {f'aibrix:modelclaim_engine_state{{phase="{phase}"}}' for phase in ("active", "sleeping")} <= set(samples)
    assert samples["aibrix:modelclaim_models_resident"] >= 1
    assert not [key for key in samples if "nobody" in key]

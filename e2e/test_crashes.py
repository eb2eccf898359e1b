"""Processes die and come back; what serves goes on serving, and what was promised stays promised."""

from __future__ import annotations

import time

import pytest

from aibrix_operator.sandbox.operators import OPERATOR
from e2e.api import eventually
from e2e.pool import GIB, QWEN3, QWEN25, SAMPLES, Pool, children_of, kill, record


@pytest.mark.acceptance("41")
def test_mc41_r1_a_killed_sidecar_comes_back_to_the_same_engines(samples: Pool):
    pod = samples.pod
    before, pids = pod.engines(), {model: pod.pid_of(model) for model in SAMPLES.values()}
    sidecar = pod.sidecar

    kill(sidecar.pid)

    eventually("a new sidecar runs", lambda: pod.folder.sidecar not in (None, sidecar), 60.0)
    after = eventually("it sees both engines active", lambda: _both_active(pod), 60.0)
    assert {model: pod.pid_of(model) for model in SAMPLES.values()} == pids
    for model in SAMPLES.values():
        assert {k: after[model][k] for k in ("port", "ipc_name", "kv_capacity_bytes", "restart_count")} == {
            k: before[model][k] for k in ("port", "ipc_name", "kv_capacity_bytes", "restart_count")
        }
    assert 'engine_re_adoptions_total{result="success"} 2.0' in pod.get("/metrics/").text
    samples.wait_active(*SAMPLES)


def _both_active(pod):
    engines = pod.engines()
    is_so = engines.keys() == set(SAMPLES.values()) and all(e["phase"] == "active" for e in engines.values())
    return engines if is_so else None


@pytest.mark.acceptance("42")
@pytest.mark.acceptance("9.31")
def test_mc42_r2_a_killed_engine_is_routed_again_only_under_its_own_limit(samples: Pool):
    """Its left-over segment shows the old limit until the new process makes it anew, with all of the card."""
    pod, model = samples.pod, SAMPLES[QWEN3]
    held = record(samples.wait(QWEN3, "has its share", lambda c: record(c) == 6 * GIB))
    before, pid, killed_s = pod.engines()[model], pod.pid_of(model), time.monotonic()
    routes = samples.routes_of(QWEN3)

    kill(pid)

    off = next(routes)
    assert (off["state"], off["port"]) == ("activating", 0)
    assert time.monotonic() - killed_s < 30.0
    back = next(routes)
    after = pod.engines()[model]
    assert (back["state"], back["port"]) == ("active", before["port"])
    assert (after["ready"], after["kv_capacity_bytes"]) == (True, held)
    assert pod.pid_of(model) != pid
    assert (after["port"], after["ipc_name"]) == (before["port"], before["ipc_name"])
    assert after["restart_count"] == before["restart_count"] + 1
    assert pod.chat(after["port"], model).status == 200
    assert samples.route(QWEN25)["state"] == "active"
    assert samples.told(QWEN25, "Unhealthy") == samples.told(QWEN25, "KVLimitNotHeld") == 0


@pytest.mark.acceptance("45")
def test_mc45_a_killed_operator_takes_up_its_work_and_restarts_nothing(samples: Pool):
    """The claim asleep with a request of the acceptance list needs the gateway."""
    samples.apply("waiting", footprint="10Gi")
    samples.wait_unplaced("waiting", "NoMatchingPods")
    pod, model = samples.pod, SAMPLES[QWEN3]
    pid, before = pod.pid_of(model), pod.engines()[model]
    records = {claim: record(samples.claim(claim)) for claim in SAMPLES}
    statuses = {claim: samples.claim(claim)["status"] for claim in (*SAMPLES, "waiting")}
    (operator,) = children_of(samples.sandbox.table.read()[OPERATOR].pid)

    kill(operator)

    eventually("a new operator runs", lambda: _successor_of(samples, operator), 30.0)
    # A new claim that gets a condition proves that it has looked at the others too.
    samples.apply("after-the-crash", footprint="0")
    samples.wait_unplaced("after-the-crash", "InvalidPerGPU")
    assert {claim: record(samples.claim(claim)) for claim in SAMPLES} == records
    assert {claim: samples.claim(claim)["status"] for claim in statuses} == statuses
    samples.delete(QWEN25)
    samples.wait_active("waiting", within_s=45.0)
    assert pod.pid_of(model) == pid
    assert pod.engines()[model]["restart_count"] == before["restart_count"]
    assert samples.route(QWEN3)["state"] == "active"


def _successor_of(pool: Pool, operator: int):
    return next((pid for pid in children_of(pool.sandbox.table.read()[OPERATOR].pid) if pid != operator), None)

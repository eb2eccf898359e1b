"""A model is claimed, started on a warm card, routed, and answers."""

from __future__ import annotations

import socket
import time
from functools import partial

import pytest

from e2e.api import eventually
from e2e.gateway import Gateway
from e2e.pool import QWEN3, QWEN25, SAMPLES, Pool, ask, conditions, phase, reason


@pytest.mark.acceptance("1")
def test_mc01_a1_both_samples_become_active(either_samples: Pool):
    pool, pod = either_samples, either_samples.pod
    engines = eventually("both engines are active", lambda: _all_active(pod.engines()))
    for claim, model in SAMPLES.items():
        found = pool.claim(claim)
        status = found["status"]
        assert (status["phase"], status["readyReplicas"], status["candidates"]) == ("Active", 1, 1)
        assert (reason(found, "Initialized"), conditions(found)["Initialized"]["status"]) == (
            "ModelClaimInitialized",
            "True",
        )
        assert (reason(found, "Scheduled"), conditions(found)["Scheduled"]["status"]) == ("Placed", "True")
        assert (reason(found, "Ready"), conditions(found)["Ready"]["status"]) == ("ModelClaimActive", "True")
        (instance,) = status["instances"]
        assert (instance["pod"], instance["phase"]) == (pod.name, "Active")
        engine = engines[model]
        assert engine["alive"]
        assert engine["claim_ref"] == {"namespace": pool.namespace, "name": claim, "uid": found["metadata"]["uid"]}
        assert engine["ipc_name"] == f"kvc_{claim}"
        assert instance["port"] == engine["port"]
        assert pool.route(claim) == {"model": model, "port": engine["port"], "state": "active", "wakeByRequest": True}
    # Of a fresh Pod they are 20000 and 20001; a port is passed over while a socket of an earlier engine lingers on it.
    assert len({e["port"] for e in engines.values() if e["port"] in range(20_000, 20_010)}) == 2
    assert len({pod.pid_of(model) for model in SAMPLES.values()}) == 2


def _all_active(engines):
    is_so = engines.keys() == set(SAMPLES.values()) and all(e["phase"] == "active" for e in engines.values())
    return engines if is_so else None


@pytest.mark.acceptance("2")
def test_mc02_a1_while_an_engine_boots_its_claim_is_activating_and_takes_no_requests(empty_pool: Pool):
    empty_pool.apply("slow-boot")
    engine = eventually("the engine is started", lambda: empty_pool.pod.engines().get("slow-boot"))
    port = engine["port"]

    booting = empty_pool.wait("slow-boot", "is placed", lambda c: reason(c, "Scheduled") == "Placed")
    route = eventually("the route says so", lambda: empty_pool.route("slow-boot"))

    assert (phase(booting), booting["status"]["readyReplicas"]) == ("Activating", 0)
    assert reason(booting, "Ready") == "EngineStarting"
    assert (route["port"], route["state"]) == (0, "activating")
    assert not empty_pool.pod.engines()["slow-boot"]["ready"]  # so what was seen was seen during the boot

    address = empty_pool.pod.address
    eventually("the engine is healthy", lambda: ask(address, port, "GET", "/health").status == 200)
    healthy_s = time.monotonic()
    eventually("it is routed", lambda: empty_pool.route("slow-boot")["port"] == port)
    assert time.monotonic() - healthy_s <= 4.0
    empty_pool.wait_active("slow-boot")


@pytest.mark.acceptance("3")
def test_mc03_a2_each_engine_answers_for_its_own_model_and_for_no_other(samples: Pool, gateway: Gateway):
    for claim, model in SAMPLES.items():
        route = samples.route(claim)
        answer = samples.pod.chat(route["port"], route["model"])
        assert answer.status == 200
        assert answer.body["model"] == model
        assert answer.body["usage"]["completion_tokens"] == 8
        assert samples.pod.chat(route["port"], "does-not-exist").status == 404
    # The claim's name is not the model's.
    assert samples.pod.chat(samples.route(QWEN3)["port"], QWEN3).status == 404
    assert samples.pod.chat(samples.route(QWEN25)["port"], QWEN25).status == 404

    for model in SAMPLES.values():
        reply = eventually("the gateway knows it", partial(_served, gateway, model), 60.0)
        assert reply.headers["routing-strategy"] == "random"
        assert reply.body["model"] == model
    for name in ("does-not-exist", *SAMPLES):
        reply = gateway.chat(name)
        assert reply.status == 400
        assert reply.error == (f"model {name} does not exist", "invalid_request_error", "model_not_found", "model")


def _served(gateway: Gateway, model: str):
    reply = gateway.chat(model, strategy="random")
    return reply if reply.status == 200 else None


@pytest.mark.acceptance("9.33")
def test_mc9_33_a_port_that_is_taken_is_passed_over(empty_pool: Pool):
    with _listener(empty_pool.pod.address, 20_000):
        empty_pool.apply("port-taken")
        empty_pool.wait_active("port-taken")
    assert empty_pool.route("port-taken")["port"] == empty_pool.pod.engines()["port-taken"]["port"] > 20_000


@pytest.mark.acceptance("9.32")
def test_mc9_32_an_empty_parallelism_passes_the_operator_and_is_refused_by_the_runtime(empty_pool: Pool):
    empty_pool.apply("empty-tp", engineConfig={"args": {"--tensor-parallel-size": ""}})

    refused = empty_pool.wait("empty-tp", "is refused", lambda c: reason(c, "Ready") == "ActivateFailed")

    assert phase(refused) == "Failed"
    assert "--tensor-parallel-size must be a positive integer" in conditions(refused)["Ready"]["message"]
    assert "instances" not in refused["status"]
    assert "empty-tp" not in empty_pool.pod.engines()
    assert empty_pool.route("empty-tp") == {}
    eventually("an Event says why", lambda: empty_pool.told("empty-tp", "ActivateFailed"))


def _listener(address: str, port: int):
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind((address, port))
    taken.listen()
    return taken

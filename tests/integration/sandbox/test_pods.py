"""What the agent makes of Pods: addresses, sidecars, restarts, removal."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from sandbox_probes import ask, both_ready, eventually, kubectl, processes_about, ready_pods

from aibrix_operator.sandbox import processes
from aibrix_operator.sim import card

pytestmark = pytest.mark.integration


def test_every_warm_pod_has_an_address_a_sidecar_and_a_card_of_its_own(tiny_sandbox, pods):
    environments = [ask(pod.address, "/environment") for pod in pods]

    assert len({pod.address for pod in pods}) == 2
    assert all(pod.address.startswith(f"127.{tiny_sandbox.subnet}.1.") for pod in pods)
    assert [e["AIBRIX_ENGINE_HOST"] for e in environments] == [pod.address for pod in pods]
    cards = [card.read_cards(environment["AIBRIX_SIM_CARDS"]) for environment in environments]
    assert sorted(c.uuid for (c,) in cards) == ["GPU-node-1-0", "GPU-node-1-1"]
    assert {c.usable_bytes for (c,) in cards} == {card.parse_card("h20").usable_bytes}
    for variable in ("AIBRIX_ENGINE_REGISTRY_PATH", "AIBRIX_KV_SEGMENT_DIR", "AIBRIX_WEIGHT_CACHE_DIR"):
        assert len({environment[variable] for environment in environments}) == 2


def test_a_killed_sidecar_comes_back_while_its_engines_live_on(tiny_sandbox, pods):
    address = pods[0].address
    engine = processes.identify(ask(address, "/start")["pid"])
    sidecar = ask(address)["pid"]

    os.kill(sidecar, signal.SIGKILL)

    eventually(lambda: ask(address)["pid"] != sidecar)
    eventually(lambda: address in {pod.address for pod in ready_pods(tiny_sandbox)})
    assert engine is not None
    assert processes.is_alive(engine)


def test_a_deleted_pod_leaves_nothing_and_its_successor_takes_its_card(tiny_sandbox, pods):
    victim = pods[0]
    environment = ask(victim.address, "/environment")
    folder = Path(environment["AIBRIX_SANDBOX_POD"])
    (cards,) = card.read_cards(environment["AIBRIX_SIM_CARDS"])
    ask(victim.address, "/start")
    assert len(processes_about(folder)) >= 3  # the sidecar, its engine, the engine's worker

    kubectl(tiny_sandbox, "delete", "pod", victim.name)

    assert processes_about(folder) == []
    assert not folder.exists()
    after = both_ready(tiny_sandbox)
    successor = next(pod for pod in after if pod.name not in {pod.name for pod in pods})
    assert card.read_cards(ask(successor.address, "/environment")["AIBRIX_SIM_CARDS"]) == (cards,)


def test_a_forced_deletion_ends_the_processes_too(tiny_sandbox, pods):
    folder = Path(ask(pods[0].address, "/environment")["AIBRIX_SANDBOX_POD"])
    kubectl(tiny_sandbox, "delete", "pod", pods[0].name, "--grace-period=0", "--force")
    eventually(lambda: not folder.exists() and not processes_about(folder))


def test_a_restarted_container_loses_its_engines_and_counts_it(tiny_sandbox, pods):
    pod = pods[0]
    engine = processes.identify(ask(pod.address, "/start")["pid"])
    registry = Path(ask(pod.address, "/environment")["AIBRIX_ENGINE_REGISTRY_PATH"])
    registry.write_text("{}")
    sidecar = ask(pod.address)["pid"]

    kubectl(tiny_sandbox, "annotate", "pod", pod.name, "sandbox.aibrix.ai/restart-container=1")

    eventually(lambda: ask(pod.address)["pid"] != sidecar)
    assert engine is not None
    assert not processes.is_alive(engine)
    assert not registry.exists()

    def restarts() -> int:
        (status,) = json.loads(kubectl(tiny_sandbox, "get", "pod", pod.name, "-o", "json"))["status"][
            "containerStatuses"
        ]
        return status["restartCount"] if status["ready"] else 0

    assert eventually(restarts) == 1


def test_an_agent_that_was_killed_takes_over_what_runs(tiny_sandbox, pods):
    supervisor = tiny_sandbox.table.read()["agent"].pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
    agent = int(children.read_text())
    sidecars = {pod.address: ask(pod.address)["pid"] for pod in pods}

    os.kill(agent, signal.SIGKILL)

    eventually(lambda: (found := children.read_text().split()) and int(found[0]) != agent)
    # Only an agent at work lets a deleted Pod go; the other Pod's sidecar was not touched meanwhile.
    kubectl(tiny_sandbox, "delete", "pod", pods[0].name)
    assert ask(pods[1].address)["pid"] == sidecars[pods[1].address]


def test_other_pods_get_an_address_and_those_of_jobs_complete(tiny_sandbox):
    kubectl(tiny_sandbox, "run", "plain", "--image=any")
    kubectl(tiny_sandbox, "create", "job", "once", "--image=any", "--", "true")

    kubectl(tiny_sandbox, "wait", "--for=condition=complete", "job/once", "--timeout=20s")
    kubectl(tiny_sandbox, "wait", "--for=condition=Ready", "pod/plain", "--timeout=20s")

    address = kubectl(tiny_sandbox, "get", "pod", "plain", "-o", "jsonpath={.status.podIP}")
    assert address.startswith(f"127.{tiny_sandbox.subnet}.1.")
    kubectl(tiny_sandbox, "delete", "pod/plain", "job/once")

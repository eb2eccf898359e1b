"""Activation and routing: a claim becomes an engine on a card, and the engine becomes a route."""

import json

import pytest
from simulated import CARD_24, GIB, model, reasons, simulated, starts

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase, InstancePhase

BOTH = ("qwen3-0-6b", "qwen25-0-5b")
SERVED = {"qwen3-0-6b": "qwen3-0.6b", "qwen25-0-5b": "qwen2.5-0.5b"}


def apply_samples(cluster):
    for claim in BOTH:
        cluster.apply(claim, "6Gi", "1Gi", modelName=SERVED[claim])


@pytest.mark.acceptance("1")
@simulated
async def test_mc01_both_samples_become_active_on_the_pod_with_their_own_engines_and_routes(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    apply_samples(cluster)
    await cluster.run(30)
    for claim in BOTH:
        status = cluster.status(claim)
        assert (status.phase, status.ready_replicas, status.desired_replicas) == (ClaimPhase.ACTIVE, 1, 1)
        assert [(i.pod, i.phase) for i in status.instances] == [("warm-0", InstancePhase.ACTIVE)]
        assert cluster.condition(claim, "Scheduled") == ("True", "Placed", "placed on pod warm-0")
        assert cluster.condition(claim, "Ready")[:2] == ("True", "ModelClaimActive")
    engines = [runtime.engines[SERVED[claim]] for claim in BOTH]
    assert sorted(e.port for e in engines) == [20000, 20001]
    assert [e.request.ipc_name for e in engines] == ["kvc_qwen3-0-6b", "kvc_qwen25-0-5b"]
    assert {k: json.loads(v) for k, v in cluster.annotations("warm-0").items()} == {
        names.route_annotation(claim): {"model": SERVED[claim], "port": port, "state": "active", "wakeByRequest": True}
        for claim, port in zip(BOTH, (e.port for e in engines), strict=True)
    }


@pytest.mark.acceptance("2")
@simulated
async def test_mc02_a_booting_engine_is_activating_off_the_route_and_routed_soon_after_its_health(cluster):
    cluster.add_pod("warm-0", CARD_24, boot_s=60.0)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(55)
    status = cluster.status("a")
    assert (status.phase, status.ready_replicas) == (ClaimPhase.ACTIVATING, 0)
    assert cluster.condition("a", "Ready")[:2] == ("False", "EngineStarting")
    assert json.loads(cluster.annotations("warm-0")[names.route_annotation("a")]) == {
        "model": model("a"),
        "port": 0,
        "state": "activating",
        "wakeByRequest": True,
    }
    assert reasons(cluster, "a") == ["Activating"]
    await cluster.run(5 + 4)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert json.loads(cluster.annotations("warm-0")[names.route_annotation("a")])["port"] == 20000
    assert ("Activated", "model model-of-a ready and routable on pod warm-0:20000") in cluster.events(claim="a")


@pytest.mark.acceptance("3")
@simulated
async def test_mc03_the_route_names_the_served_model_and_not_the_claim(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("qwen3-0-6b", "6Gi", "1Gi", modelName="qwen3-0.6b")
    cluster.apply("nameless", "6Gi", "1Gi", modelName="")
    await cluster.run(15)
    routes = {k: json.loads(v)["model"] for k, v in cluster.annotations("warm-0").items()}
    assert routes == {
        names.route_annotation("qwen3-0-6b"): "qwen3-0.6b",
        names.route_annotation("nameless"): "nameless",
    }


@pytest.mark.acceptance("4")
@simulated
async def test_mc04_a_pod_that_turns_unready_keeps_its_routes_for_the_gateway_to_judge(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)
    routes = cluster.annotations("warm-0")
    cluster.set_pod_ready("warm-0", False)
    await cluster.run(60)
    assert cluster.annotations("warm-0") == routes
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert starts(runtime) == [model("a")]


@pytest.mark.acceptance("1")
@simulated
async def test_mc01_nothing_is_written_once_everything_says_what_it_should(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    apply_samples(cluster)
    await cluster.run(30)
    writes, calls, events = len(cluster.store.writes), len(runtime.calls), len(cluster.events())
    await cluster.run(600)
    assert (len(cluster.store.writes), len(runtime.calls), len(cluster.events())) == (writes, calls, events)
    assert sum(i.kv_limit_bytes for c in BOTH for i in cluster.status(c).instances) + 12 * GIB == CARD_24

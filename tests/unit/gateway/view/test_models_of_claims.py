"""Claims on warm Pods: the ports that routes name, and what a client is told while there is none."""

import pytest
from gateway_objects import CONFIG, OLD_ROUTE, ROUTE, Cluster, claim, route, warm

from aibrix_operator.gateway import refusals
from aibrix_operator.gateway.view import WakeTarget


@pytest.fixture
def cluster():
    return Cluster()


def told(cluster, name):
    """What a client of the model is told: (status, seconds, message, header)."""
    model = cluster[name]
    refuse = refusals.not_routable(name, model.standing) if model.standing else refusals.no_pods(name)
    return refuse.status, refuse.retry_after_s, refuse.message, refuse.headers["x-error-no-model-backends"]


@pytest.mark.acceptance("GW-105")
def test_gw105_two_claims_on_one_pod_have_their_own_ports(cluster):
    cluster.has(warm(routes={"a": route("model-a", 20000), "b": route("model-b", 20001)}))
    assert cluster.addresses("model-a") == ["10.0.0.1:20000"]
    assert cluster.addresses("model-b") == ["10.0.0.1:20001"]
    assert cluster["model-a"].endpoints[0].key != cluster["model-b"].endpoints[0].key


def test_a_change_of_one_claims_route_leaves_its_neighbours_model_the_same_object(cluster):
    cluster.has(warm(routes={"a": route("model-a", 20000), "b": route("model-b", 20001)}))
    kept = cluster["model-b"]
    assert cluster.has(warm(routes={"a": route("model-a"), "b": route("model-b", 20001)})) == ["model-a"]
    assert cluster["model-b"] is kept


def test_the_engine_of_a_route_is_its_claims_whatever_the_claim_is_renamed_to(cluster):
    cluster.has(warm(routes={"a": route("model-a", 20000)}), claim("a", model="renamed", engine="sglang"))
    assert cluster["model-a"].engine == "sglang"
    assert cluster.has(claim("a", model="renamed", engine="vllm")) == ["model-a", "renamed"]
    assert (cluster["model-a"].engine, cluster["model-a"].endpoints[0].engine) == ("vllm", "vllm")


@pytest.mark.acceptance("GW-104")
def test_gw104_the_old_prefix_is_read_too_and_the_new_one_wins(cluster):
    old = warm(routes={"a": '{"model":"model-a","port":20000}', "b": '{"model":"model-b","port":0}'}, prefix=OLD_ROUTE)
    cluster.has(old)
    assert cluster.addresses("model-a") == ["10.0.0.1:20000"]
    assert cluster.standing("model-b") == ("activating", "", 10)
    old["metadata"]["annotations"][ROUTE + "a"] = route("model-a", 20007)
    cluster.has(old)
    assert cluster.addresses("model-a") == ["10.0.0.1:20007"]


@pytest.mark.acceptance("GW-103")
@pytest.mark.parametrize(
    "text",
    [route("m", 0, "active"), route("m", 20000, "sleeping"), "{", "7", '{"port": 1}', '{"model":"","port":1}', ""],
)
def test_gw103_a_route_that_contradicts_itself_is_no_route(cluster, text):
    cluster.has(warm(routes={"c": text}))
    assert "m" not in cluster
    cluster.has(claim("c", model="m", phase="Active"))
    assert cluster["m"].endpoints == ()


@pytest.mark.acceptance("GW-103")
def test_gw103_an_active_route_on_a_pod_that_is_not_ready_is_an_error_on_getting_pods_without_retry(cluster):
    cluster.has(warm(routes={"c": route("m", 20000)}, ready=False), claim("c", model="m", phase="Active"))
    assert told(cluster, "m") == (503, None, "error on getting pods for model m", "true")


@pytest.mark.acceptance("GW-102")
@pytest.mark.parametrize(
    ("text", "seconds", "message"),
    [
        (route("m", 0, "activating"), 10, "model m is activating; retry shortly"),
        (route("m"), 10, "model m is sleeping; retry shortly"),
        (route("m", 0, "sleeping", "WaitingForRoom"), 20, "model m is sleeping (WaitingForRoom); retry shortly"),
        (route("m", 0, "failed"), 10, "model m is failed; retry shortly"),
        (route("m", 0, "failed", "EngineFailed"), 10, "model m is failed (EngineFailed); retry shortly"),
        (route("m", 0, "failed", "Moving"), 30, "model m is failed (Moving); retry shortly"),
    ],
)
def test_gw102_a_route_without_engine_names_state_and_reason_with_its_wait(cluster, text, seconds, message):
    cluster.has(warm(routes={"c": text}), claim("c", model="m", phase="Failed"))
    assert told(cluster, "m") == (503, seconds, message, "m")


@pytest.mark.acceptance("GW-102")
@pytest.mark.parametrize(
    ("phase", "conditions", "seconds", "message"),
    [
        (None, (), 10, "model m is pending; retry shortly"),
        (
            "Pending",
            [("Scheduled", "False", "NoMatchingPods")],
            10,
            "model m is pending (NoMatchingPods); retry shortly",
        ),
        ("Pending", [("Scheduled", "False", "NotPlaced")], 10, "model m is pending (NotPlaced); retry shortly"),
        ("Pending", [("Scheduled", "False", "MakingRoom")], 20, "model m is pending (MakingRoom); retry shortly"),
        ("Pending", [("Scheduled", "False", "TooLargeForAnyCard")], None, "model m is pending (TooLargeForAnyCard)"),
        ("Pending", [("Scheduled", "False", "InvalidPerGPU")], None, "model m is pending (InvalidPerGPU)"),
        ("Activating", [("Scheduled", "True", "Placed")], 10, "model m is activating; retry shortly"),
        (
            "Failed",
            [("Scheduled", "False", "NotPlaced"), ("Ready", "False", "InvalidEngineConfig")],
            None,
            "model m is failed (InvalidEngineConfig)",
        ),
        ("Failed", [("Ready", "False", "ActivateFailed")], 10, "model m is failed (ActivateFailed); retry shortly"),
        ("Failed", [("Ready", "False", "EngineFailed")], 10, "model m is failed (EngineFailed); retry shortly"),
    ],
)
def test_gw102_a_claim_without_route_names_phase_and_reason_with_its_wait(cluster, phase, conditions, seconds, message):
    cluster.has(claim("c", model="m", phase=phase, conditions=conditions))
    assert told(cluster, "m") == (503, seconds, message, "m")


def test_a_route_wins_over_the_claims_own_object_and_the_lowest_pod_over_the_others(cluster):
    cluster.has(
        claim("c", model="m", phase="Pending"),
        warm("b", routes={"c": route("m", 0, "failed")}),
        warm("a", routes={"c": route("m", 0, "activating")}),
    )
    assert cluster.standing("m") == ("activating", "", 10)
    cluster.has(warm("b", routes={"c": route("m", 20000)}))
    assert cluster["m"].standing is None
    assert [e.pod for e in cluster["m"].endpoints] == ["b"]


def test_the_first_of_two_claims_of_one_name_speaks_for_it(cluster):
    cluster.has(claim("b", model="m", phase="Failed"), claim("a", model="m", phase="Scheduling"))
    assert cluster.standing("m") == ("scheduling", "", 10)


def test_a_claim_without_model_name_serves_its_own_and_one_that_is_being_deleted_serves_none(cluster):
    cluster.has(claim("qwen"))
    assert "qwen" in cluster
    assert cluster.has(claim("qwen", deleting=True)) == ["qwen"]
    assert "qwen" not in cluster


def test_the_claims_name_is_no_model(cluster):
    cluster.has(claim("qwen3-0-6b", model="qwen3-0.6b"), warm(routes={"qwen3-0-6b": route("qwen3-0.6b", 20000)}))
    assert "qwen3-0-6b" not in cluster


def test_a_sleeping_engine_can_be_woken_over_the_version_of_its_pod_that_was_read(cluster):
    cluster.has(warm("w", routes={"c": route("m")}, version="41", uid="u"))
    target = WakeTarget("default", "w", "u", "41", "c", "m", False, True, "http://10.0.0.1:8080")
    assert cluster["m"].standing.wake == target
    cluster.has(warm("w", routes={"c": route("m", wake_by_request=False)}, asked=["c"], version="42", uid="u"))
    target = WakeTarget("default", "w", "u", "42", "c", "m", True, False, "http://10.0.0.1:8080")
    assert cluster["m"].standing.wake == target


@pytest.mark.parametrize("state", ["activating", "failed"])
def test_only_a_sleeping_engine_is_woken(cluster, state):
    cluster.has(warm(routes={"c": route("m", 0, state)}))
    assert cluster["m"].standing.wake is None


def test_a_sleeper_on_a_pod_that_is_going_is_not_woken_there(cluster):
    cluster.has(warm(routes={"c": route("m")}, deleting=True), claim("c", model="m", phase="Sleeping"))
    assert cluster.standing("m") == ("sleeping", "", 10)
    assert cluster["m"].standing.wake is None


def test_a_claims_config_comes_before_its_pods_so_that_claims_of_one_pool_can_differ(cluster):
    pool = {CONFIG: '{"lock": "random"}'}
    cluster.has(
        warm(routes={"a": route("model-a", 20000), "b": route("model-b", 20001)}, annotations=pool),
        claim("a", model="model-a", config='{"lock": "prefix-cache"}'),
        claim("b", model="model-b", config="{"),
    )
    assert cluster["model-a"].config.locked_strategy == "prefix-cache"
    assert cluster["model-b"].config.locked_strategy == "random"


def test_a_claims_engine_is_its_endpoints(cluster):
    cluster.has(warm(routes={"c": route("m", 20000)}), claim("c", model="m", engine="sglang"))
    assert (cluster["m"].engine, cluster["m"].endpoints[0].engine) == ("sglang", "sglang")


@pytest.mark.acceptance("9.23")
def test_odd_names_survive(cluster):
    name = 'o"dd\n\u00fc/😀 name' + "x" * 100
    cluster.has(warm(routes={"c": route(name, 20000)}))
    assert cluster.addresses(name) == ["10.0.0.1:20000"]

"""The gateway's own HTTP server, asked as clients, kubelets and Prometheus ask it."""

import socket

import aiohttp
import pytest
from gateway_objects import NAME, Cluster, adapter, claim, pod, route, warm
from prometheus_client import CollectorRegistry, Counter

from aibrix_operator.gateway import api_server
from aibrix_operator.gateway.api_server import Sources, create_app
from aibrix_operator.gateway.keys import Keys
from aibrix_operator.sandbox.control_plane import free_port


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
async def ask(cluster):
    """``ask(method, path, …)`` of a server over ``cluster``, which says ``ask.told`` and counts in ``ask.registry``."""
    registry = CollectorRegistry()
    told = {"problems": []}

    async def problems():
        return told["problems"]

    app = create_app(
        Sources(cluster.view, registry, problems, Keys({"secret": None}), {"models": lambda: {"count": 7}})
    )
    port = free_port()
    async with api_server.serve(app, "127.0.0.1", port), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def call(method, path, key="secret", **more):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            async with session.request(method, path, headers=headers, **more) as answer:
                body = await answer.read()
                kind = answer.content_type
                return answer.status, (await answer.json() if body and kind == "application/json" else body.decode())

        call.told, call.registry = told, registry
        yield call


async def test_models_are_listed_in_openais_shape_and_each_tells_its_state(cluster, ask):
    cluster.has(
        pod("p", labels={NAME: "awake"}),
        pod("q", labels={NAME: "unready"}, ready=False),
        warm(
            "w",
            {"a": route("asleep"), "b": route("asked"), "c": route("roomless", 0, "sleeping", "WaitingForRoom")},
            asked=["b"],
        ),
        warm("x", {"d": route("booting", 0, "activating"), "e": route("broken", 0, "failed")}),
        claim("f", model="waiting", conditions=[("Scheduled", "False", "NoMatchingPods")]),
        adapter("sql", "p", base="awake"),
    )
    status, body = await ask("GET", "/v1/models")
    assert (status, body["object"]) == (200, "list")
    assert [(model["id"], model["status"]) for model in body["data"]] == [
        ("asked", "waking"),
        ("asleep", "sleeping"),
        ("awake", "active"),
        ("booting", "activating"),
        ("broken", "failed"),
        ("roomless", "waking"),
        ("sql", "active"),
        ("unready", "unavailable"),
        ("waiting", "pending"),
    ]
    by_name = {model["id"]: model for model in body["data"]}
    assert by_name["awake"] == {
        "id": "awake",
        "object": "model",
        "created": 0,
        "owned_by": "aibrix",
        "status": "active",
        "replicas": 1,
    }
    assert by_name["sql"]["parent"] == "awake"
    assert by_name["waiting"]["reason"] == "NoMatchingPods"


async def test_one_model_is_told_by_its_name_also_with_a_slash(cluster, ask):
    cluster.has(pod("p", annotations={NAME: "org/m"}))
    status, body = await ask("GET", "/v1/models/org/m")
    assert (status, body["id"]) == (200, "org/m")
    status, body = await ask("GET", "/v1/models/m")
    assert (status, body["error"]["code"], body["error"]["param"]) == (404, "model_not_found", "model")


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m"])
@pytest.mark.parametrize("key", ["", "wrong"])
async def test_models_are_told_to_those_with_a_key_only(ask, path, key):
    status, body = await ask("GET", path, key)
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_models_can_only_be_read(ask, method):
    assert await ask(method, "/v1/models") == (405, {"error": "method not allowed"})
    assert (await ask("HEAD", "/v1/models"))[0] == 200


@pytest.mark.acceptance("GW-119")
async def test_gw119_it_is_ready_when_nothing_speaks_against_it_and_alive_all_the_time(ask):
    assert await ask("GET", "/readyz", "") == (200, {"status": "ready", "problems": []})
    ask.told["problems"] = ["Redis does not answer"]
    assert await ask("GET", "/readyz", "") == (503, {"status": "not ready", "problems": ["Redis does not answer"]})
    assert await ask("GET", "/healthz", "") == (200, {"status": "ok"})


async def test_metrics_are_prometheus_text_and_the_status_page_has_each_section(ask):
    Counter("gateway_request", "Requests.", registry=ask.registry).inc()
    status, text = await ask("GET", "/metrics", "")
    assert (status, "gateway_request_total 1.0" in text) == (200, True)
    assert await ask("GET", "/status", "") == (200, {"models": {"count": 7}})


async def test_another_path_is_an_error_in_openais_shape(ask):
    status, body = await ask("GET", "/v1/elsewhere")
    assert (status, body["error"]["message"]) == (404, "unknown request path")


async def test_an_address_that_is_taken_is_an_error(cluster):
    async def problems():
        return ()

    app = create_app(Sources(cluster.view, CollectorRegistry(), problems))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            async with api_server.serve(app, "127.0.0.1", taken.getsockname()[1]):
                pass

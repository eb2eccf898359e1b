"""The HTTPRoute and ReferenceGrant as AIBrix's gateway expects them."""

from dataclasses import replace

import pytest
from adapter_play import Play

from aibrix_operator.api import names
from aibrix_operator.modeladapter import routes


def routed(model="sql", annotations=None, labels=None):
    adapter = Play().adapter
    return replace(adapter, labels={names.MODEL_LABEL: model, **(labels or {})}, annotations=annotations or {})


@pytest.mark.acceptance("MA-60")
def test_a_route_matches_the_header_and_each_path():
    route = routes.http_route(routed())
    assert (route["metadata"]["name"], route["metadata"]["namespace"]) == ("sql-router", "aibrix-system")
    matches = route["spec"]["rules"][0]["matches"]
    assert [match["path"]["value"] for match in matches] == list(routes.PATHS)
    assert all(
        match["headers"] == [{"type": "Exact", "name": "model", "value": "sql"}]
        and match["path"]["type"] == "PathPrefix"
        for match in matches
    )
    assert route["spec"]["parentRefs"] == [{"name": "aibrix-eg", "namespace": "aibrix-system"}]


@pytest.mark.acceptance("MA-61")
@pytest.mark.parametrize("model", ["/models/x", "Org/Name", "a..b", "x" * 260, "---"])
def test_a_name_that_kubernetes_refuses_is_made_one(model):
    name = routes.route_name(model)
    assert routes._DNS_NAME.fullmatch(name)
    assert len(name) <= 253
    assert name.endswith("-router")
    assert name != routes.route_name(model + "y")


@pytest.mark.acceptance("MA-61")
def test_the_made_name_has_twelve_hex_digits():
    head, digest, tail = routes.route_name("/models/x").rsplit("-", 2)
    assert (head, len(digest), tail) == ("models-x", 12, "router")
    assert int(digest, 16) >= 0


@pytest.mark.acceptance("MA-62")
def test_custom_paths_lose_blanks_and_doubles():
    adapter = routed(annotations={names.PATHS_ANNOTATION: " /mine , /v1/rerank,, /mine,/o ther"})
    paths = [match["path"]["value"] for match in routes.http_route(adapter)["spec"]["rules"][0]["matches"]]
    assert paths == [*routes.PATHS, "/mine", "/other"]


def test_service_and_port_can_be_named():
    adapter = routed(annotations={names.SERVICE_ANNOTATION: "front"}, labels={names.PORT_LABEL: "9000"})
    route = routes.http_route(adapter)
    assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "front", "namespace": "default", "port": 9000}]
    assert routes.leads_to(route, adapter)
    assert not routes.leads_to(route, replace(adapter, namespace="elsewhere"))
    assert not routes.leads_to({"spec": None}, adapter)


def test_a_grant_lets_the_gateways_routes_in():
    grant = routes.reference_grant("serving")
    assert grant["metadata"] == {
        "name": "aibrix-system-reserved-referencegrant-in-serving",
        "namespace": "serving",
    }
    assert grant["spec"]["from"][0]["namespace"] == "aibrix-system"

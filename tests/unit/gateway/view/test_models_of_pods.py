"""Pods that carry an engine of their own: which models they make, and where requests may go."""

import pytest
from gateway_objects import CONFIG, NAME, Cluster, adapter, claim, pod

PORT, ENGINE = "model.aibrix.ai/port", "model.aibrix.ai/engine"


@pytest.fixture
def cluster():
    return Cluster()


def test_a_ready_pod_with_the_label_serves_its_model_on_the_default_port(cluster):
    assert cluster.has(pod(labels={NAME: "m"})) == ["m"]
    (endpoint,) = cluster["m"].endpoints
    assert (endpoint.address, endpoint.key, endpoint.engine) == ("10.0.0.1:8000", "default/p0:8000", "vllm")
    assert endpoint.ready_since_s == 1767225610.0
    assert cluster["m"].standing is None


def test_port_and_engine_are_read_off_labels_and_an_ipv6_address_gets_its_brackets(cluster):
    cluster.has(pod(labels={NAME: "m", PORT: "9000", ENGINE: "sglang"}, ip="fd00::1"))
    (endpoint,) = cluster["m"].endpoints
    assert (endpoint.address, endpoint.key) == ("[fd00::1]:9000", "default/p0:9000")
    assert (cluster["m"].engine, endpoint.engine) == ("sglang", "sglang")


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "٣", "1" * 30, ""])
def test_a_port_that_is_none_counts_as_absent(cluster, port):
    cluster.has(pod(labels={NAME: "m", PORT: port}))
    assert cluster.addresses("m") == ["10.0.0.1:8000"]


@pytest.mark.acceptance("GW-15")
def test_gw15_a_name_that_no_label_can_hold_is_an_annotation_and_a_label_wins_over_it(cluster):
    cluster.has(pod("a", annotations={NAME: "org/m"}), pod("b", labels={NAME: "by-label"}, annotations={NAME: "other"}))
    assert cluster.addresses("org/m") == ["10.0.0.1:8000"]
    assert "by-label" in cluster
    assert "other" not in cluster


@pytest.mark.acceptance("GW-3")
@pytest.mark.parametrize(
    "problem", [{"ready": False}, {"ip": ""}, {"deleting": True}], ids=["unready", "no-ip", "going"]
)
def test_gw03_a_model_whose_only_pod_takes_no_requests_is_known_and_not_routable(cluster, problem):
    cluster.has(pod(labels={NAME: "m"}, **problem))
    assert cluster["m"].endpoints == ()
    assert cluster["m"].standing is None


def test_a_pod_without_status_or_with_nonsense_in_it_is_known_and_not_routable(cluster):
    bare = pod(labels={NAME: "m"}) | {"status": None}
    odd = pod("odd", labels={NAME: "m", "x": 5}) | {
        "status": {"conditions": "none", "podIP": 7},
        "spec": {"containers": 1},
    }
    cluster.has(bare, odd)
    assert cluster["m"].endpoints == ()


def test_data_parallel_ranks_have_a_port_each(cluster):
    cluster.has(pod(labels={NAME: "m", PORT: "8100"}, env={"data-parallel-size": "3"}))
    assert cluster.addresses("m") == ["10.0.0.1:8100", "10.0.0.1:8101", "10.0.0.1:8102"]


@pytest.mark.parametrize("ranks", ["0", "-2", "two", "100000", "257"])
def test_a_number_of_ranks_that_cannot_be_is_one(cluster, ranks):
    cluster.has(pod(labels={NAME: "m"}, env={"data-parallel-size": ranks}))
    assert cluster.addresses("m") == ["10.0.0.1:8000"]


def test_endpoints_are_ordered_by_their_keys_and_pods_of_one_name_in_two_namespaces_are_two(cluster):
    cluster.has(
        pod("b", labels={NAME: "m"}, ip="10.0.0.2"),
        pod("a", labels={NAME: "m"}, ip="10.0.0.3", namespace="other"),
        pod("a", labels={NAME: "m"}, ip="10.0.0.1"),
    )
    assert [e.key for e in cluster["m"].endpoints] == ["default/a:8000", "default/b:8000", "other/a:8000"]


def test_one_pods_event_leaves_other_models_and_other_endpoints_the_same_objects(cluster):
    cluster.has(pod("a", labels={NAME: "m"}), pod("b", labels={NAME: "m"}, ip="10.0.0.2"), pod("c", labels={NAME: "n"}))
    kept, other = cluster["m"].endpoints[0], cluster["n"]
    assert cluster.has(pod("b", labels={NAME: "m"}, ip="10.0.0.2", ready=False)) == ["m"]
    assert cluster["m"].endpoints == (kept,)
    assert cluster["n"] is other


def test_an_event_that_changes_nothing_of_a_model_leaves_it_the_same_object(cluster):
    cluster.has(pod("a", labels={NAME: "m"}))
    before = cluster["m"]
    assert cluster.has(pod("a", labels={NAME: "m"}, annotations={"x": "y"})) == []
    assert cluster["m"] is before


@pytest.mark.acceptance("GW-60")
def test_gw60_a_pod_that_was_recreated_under_its_name_is_another_endpoint(cluster):
    cluster.has(pod("a", labels={NAME: "m"}, uid="first"))
    (before,) = cluster["m"].endpoints
    assert cluster.has(pod("a", labels={NAME: "m"}, uid="second")) == ["m"]
    (after,) = cluster["m"].endpoints
    assert (after.key, after.uid) == (before.key, "second")
    assert after != before


def test_a_pod_that_changes_its_model_leaves_the_old_one(cluster):
    cluster.has(pod("a", labels={NAME: "m"}))
    assert cluster.has(pod("a", labels={NAME: "n"})) == ["m", "n"]
    assert "m" not in cluster


def test_the_last_pods_end_is_the_models_end_and_is_told_once(cluster):
    cluster.has(pod("a", labels={NAME: "m"}))
    before = cluster["m"]
    assert cluster.lost(pod="a") == ["m"]
    assert [(c.old, c.new) for c in cluster.changes] == [(before, None)]
    assert cluster.lost(pod="a") == []


def test_a_pod_that_says_nothing_makes_nothing(cluster):
    assert cluster.has(pod("web", labels={"app": "web"})) == []
    assert cluster.view.models == {}


@pytest.mark.acceptance("GW-30")
def test_the_first_pod_with_a_valid_config_gives_it(cluster):
    broken = {CONFIG: "{"}
    cluster.has(
        pod("a", labels={NAME: "m"}, annotations=broken),
        pod("b", labels={NAME: "m"}, annotations={CONFIG: '{"lock": "random"}'}),
        pod("c", labels={NAME: "m"}, annotations={CONFIG: '{"lock": "least-request"}'}),
    )
    assert cluster["m"].config.locked_strategy == "random"
    assert cluster.lost(pod="b") == ["m"]
    assert cluster["m"].config.locked_strategy == "least-request"


def test_a_models_engine_is_that_of_its_first_pod(cluster):
    cluster.has(
        pod("b", labels={NAME: "m", ENGINE: "sglang"}), pod("a", labels={NAME: "m"}, annotations={ENGINE: "xdit"})
    )
    assert cluster["m"].engine == "xdit"


def test_an_adapter_is_served_where_it_is_loaded_also_when_it_was_told_of_before_its_pod(cluster):
    cluster.has(adapter("sql", "a", "gone", base="m"))
    assert cluster["sql"].endpoints == ()
    assert cluster.standing("sql") is None
    assert cluster.has(pod("a", labels={NAME: "m", PORT: "9000"})) == ["m", "sql"]
    assert (cluster.addresses("sql"), cluster["sql"].base) == (["10.0.0.1:9000"], "m")
    assert cluster["sql"].endpoints[0].model == "sql"
    assert cluster.has(pod("a", labels={NAME: "m", PORT: "9000"}, ready=False)) == ["m", "sql"]
    assert cluster["sql"].endpoints == ()


def test_an_adapter_that_is_being_deleted_is_routed_no_more(cluster):
    cluster.has(pod("a", labels={NAME: "m"}), adapter("sql", "a"))
    assert cluster.has(adapter("sql", "a", deleting=True)) == ["sql"]
    assert "sql" not in cluster


def test_a_pod_that_only_carries_adapters_is_known_by_its_label(cluster):
    cluster.has(pod("a", labels={"adapter.model.aibrix.ai/enabled": "true"}), adapter("sql", "a"))
    assert cluster.addresses("sql") == ["10.0.0.1:8000"]


def test_two_of_three_pods_have_it_and_only_those_get_its_requests(cluster):
    cluster.has(*(pod(name, labels={NAME: "m"}, ip=f"10.0.0.{n}") for n, name in enumerate("abc")))
    cluster.has(adapter("sql", "a", "c"))
    assert cluster.addresses("sql") == ["10.0.0.0:8000", "10.0.0.2:8000"]
    assert len(cluster.addresses("m")) == 3


def test_an_adapter_that_is_gone_or_unloaded_is_routed_no_more(cluster):
    cluster.has(pod("a", labels={NAME: "m"}), adapter("sql", "a"))
    assert cluster.has(adapter("sql")) == ["sql"]
    assert cluster["sql"].endpoints == ()
    assert cluster.lost(adapter="sql") == ["sql"]
    assert "sql" not in cluster
    assert cluster.has(pod("a", labels={NAME: "m"}, ready=False)) == ["m"]


def test_pods_of_a_model_that_is_claimed_too_serve_it_while_they_can(cluster):
    cluster.has(pod("a", labels={NAME: "m"}), claim("c", model="m"))
    assert cluster.addresses("m") == ["10.0.0.1:8000"]
    cluster.has(pod("a", labels={NAME: "m"}, ready=False))
    assert (cluster["m"].endpoints, cluster["m"].standing) == ((), None)
    cluster.lost(pod="a")
    assert cluster.standing("m") == ("pending", "", 10)


def test_what_nobody_speaks_of_any_more_leaves_nothing_behind(cluster):
    cluster.has(pod("a", labels={NAME: "m"}), claim("c", model="n"), adapter("sql", "a"))
    cluster.lost(pod="a", claim="c", adapter="sql")
    assert cluster.view.models == {}
    assert all(
        not index._keys and not index.objects for index in vars(cluster._catalogue).values() if hasattr(index, "_keys")
    )

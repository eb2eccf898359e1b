"""Dashboard and alerts come into the cluster as their files are, and the page stays inside of its Pod."""

import json

import yaml
from chart_helm import CHART, render

ALL = {
    "monitoring": {
        "dashboards": {"enabled": True},
        "alerts": {"enabled": True, "labels": {"release": "prom"}},
        "podMonitor": {"enabled": True},
    },
    "warmPools": {"namespaces": ["pool-a", "pool-b"]},
}


def test_the_dashboard_is_found_by_grafana_and_is_the_file():
    made = render(ALL).one("ConfigMap", "aibrix-dashboards")
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    file = CHART / "files" / "dashboards" / "aibrix-operator.json"
    assert json.loads(made["data"][file.name]) == json.loads(file.read_text())


def test_the_alerts_are_the_rule_file_templates_and_all():
    made = render(ALL).one("PrometheusRule", "aibrix")
    assert made["metadata"]["labels"]["release"] == "prom"
    assert made["spec"] == yaml.safe_load((CHART / "files" / "alerts" / "aibrix-operator.yaml").read_text())


def test_sidecars_are_scraped_with_their_token_in_each_namespace_of_warm_pods():
    found = {m["metadata"]["namespace"]: m["spec"] for m in render(ALL).of_kind("PodMonitor")}
    assert found.keys() == {"aibrix-system", "pool-a", "pool-b"}
    [endpoint] = found["pool-a"]["podMetricsEndpoints"]
    assert endpoint["path"] == "/metrics/"
    assert endpoint["authorization"]["credentials"] == {"name": "aibrix-runtime-token", "key": "token"}


def test_by_default_nothing_of_it_is_installed():
    kinds = {obj["kind"] for obj in render().objects}
    assert not kinds & {"PrometheusRule", "PodMonitor"}
    assert not [m for m in render().of_kind("ConfigMap") if m["metadata"]["name"].endswith("dashboards")]


def test_the_page_is_for_those_who_may_port_forward_and_can_be_switched_off():
    [on] = render().pod("aibrix")["spec"]["containers"]
    assert "--page=http://127.0.0.1:8090" in on["args"]
    assert 8090 not in [port["containerPort"] for port in on["ports"]]
    [off] = render({"operator": {"page": {"enabled": False}}}).pod("aibrix")["spec"]["containers"]
    assert not [word for word in off["args"] if word.startswith("--page")]

"""Names, ports and files of the rendered objects fit together."""

import re

import pytest
import uvloop
import yaml
from chart_helm import CHART, NAMESPACE, render, render_text
from chart_variants import VARIANTS
from typer.testing import CliRunner

import aibrix_operator
from aibrix_operator.cli import app


def containers(pod):
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


@pytest.mark.parametrize("name", VARIANTS)
def test_each_object_says_its_namespace_and_its_release(name):
    for obj in render(VARIANTS[name]).objects:
        metadata = obj["metadata"]
        if not obj["kind"].startswith(("ClusterRole", "CustomResource")):
            assert metadata["namespace"] in {NAMESPACE, "pool-a", "pool-b"}
        assert metadata["labels"]["app.kubernetes.io/instance"] == "aibrix"


@pytest.mark.parametrize("name", VARIANTS)
def test_each_mount_has_its_volume_and_each_volume_its_mount(name):
    for deployment in render(VARIANTS[name]).of_kind("Deployment"):
        pod = deployment["spec"]["template"]
        mounts = [mount for container in containers(pod) for mount in container["volumeMounts"]]
        places = {mount["mountPath"] for mount in mounts}
        assert {mount["name"] for mount in mounts} == {volume["name"] for volume in pod["spec"]["volumes"]}
        for container in containers(pod):
            for word in container.get("args", ()):
                path = re.search(r"=(?:unix:)?(/(?:var/)?run/[^=]+)$", word)
                assert path is None or any(path[1].startswith(f"{place}/") for place in places), f"{word} lies nowhere"


@pytest.mark.parametrize("name", VARIANTS)
def test_each_service_and_policy_selects_pods_of_one_deployment(name):
    rendered = render(VARIANTS[name])
    labels = [d["spec"]["template"]["metadata"]["labels"] for d in rendered.of_kind("Deployment")]
    selectors = [s["spec"]["selector"] for s in rendered.of_kind("Service")]
    selectors += [p["spec"]["selector"]["matchLabels"] for p in rendered.of_kind("PodDisruptionBudget")]
    for selector in selectors:
        assert sum(selector.items() <= found.items() for found in labels) == 1


@pytest.mark.parametrize("name", VARIANTS)
def test_our_own_command_line_takes_the_arguments(name, monkeypatch):
    """Files are not there, so options that look for theirs are left out."""
    started = []

    def run(coroutine):
        coroutine.close()
        started.append(coroutine)

    monkeypatch.setattr(uvloop, "run", run)
    for deployment in render(VARIANTS[name]).of_kind("Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        if container["name"] != "redis":
            words = [word for word in container["args"] if "/var/run/secrets/" not in word or "--tls" in word]
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, done.output
            assert started.pop()


def test_envoy_is_configured_with_the_words_that_the_gateway_is_started_with():
    pod = render(VARIANTS["tls"]).pod("aibrix-gateway")
    (gateway,) = pod["spec"]["containers"]
    configure, envoy = pod["spec"]["initContainers"]
    assert [word for word in configure["args"] if word != "--configure"] == gateway["args"]
    assert envoy["restartPolicy"] == "Always"
    assert f"--envoy-config={envoy['args'][1]}" in gateway["args"]


def test_a_gateway_pod_is_given_longer_than_its_requests():
    pod = render({"gateway": {"graceSeconds": 300, "leaveSeconds": 20}}).pod("aibrix-gateway")
    (gateway,) = pod["spec"]["containers"]
    assert "--grace=300" in gateway["args"]
    assert gateway["lifecycle"]["preStop"] == {"sleep": {"seconds": 20}}
    assert pod["spec"]["terminationGracePeriodSeconds"] > 320


def test_the_token_is_the_same_wherever_it_is_read():
    rendered = render(VARIANTS["pools-elsewhere"])
    secrets = [s for s in rendered.of_kind("Secret") if s["metadata"]["name"] == "aibrix-runtime-token"]
    assert [s["metadata"]["namespace"] for s in secrets] == [NAMESPACE, "pool-a", "pool-b"]
    assert len({s["data"]["token"] for s in secrets}) == 1
    again = yaml.safe_load_all(render_text(VARIANTS["pools-elsewhere"]))
    assert secrets[0]["data"]["token"] not in [s["data"].get("token") for s in again if s and s["kind"] == "Secret"]


def test_no_secret_is_in_an_argument_or_an_environment_variable():
    for values in VARIANTS.values():
        for deployment in render(values).of_kind("Deployment"):
            for container in containers(deployment["spec"]["template"]):
                assert not [e for e in container.get("env", []) if "secretKeyRef" in e.get("valueFrom", {})]
                assert not [word for word in container.get("args", []) if "redis://" in word]


def test_warm_pods_are_closed_to_all_but_operator_and_gateway_in_each_of_their_namespaces():
    rendered = render({"warmPools": {"namespaces": ["pool-a", "pool-b"]}})
    for namespace in ("pool-a", "pool-b"):
        policy = rendered.one("NetworkPolicy", "aibrix-warm-pods", namespace)["spec"]
        assert policy["podSelector"] == {"matchLabels": {"claim.model.aibrix.ai/enabled": "true"}}
        (rule,) = policy["ingress"]
        assert "ports" not in rule
        peers = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]]
        assert peers == ["operator", "gateway"]
        assert {p["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for p in rule["from"]} == {
            NAMESPACE
        }


def test_the_version_is_the_packages():
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert described["version"] == described["appVersion"] == aibrix_operator.__version__
    (operator,) = render().pod("aibrix")["spec"]["containers"]
    assert operator["image"] == f"aibrix-operator:{aibrix_operator.__version__}"


def test_the_example_of_a_warm_pool_uses_what_the_chart_makes():
    example = yaml.safe_load((CHART.parents[1] / "examples" / "warm-pool.yaml").read_text())
    volumes = example["spec"]["template"]["spec"]["volumes"]
    (named,) = [v["secret"]["secretName"] for v in volumes if "secret" in v]
    assert render().one("Secret", named)["data"].keys() == {"token"}
    policy = render().one("NetworkPolicy", "aibrix-warm-pods")
    selected = policy["spec"]["podSelector"]["matchLabels"]
    assert selected.items() <= example["spec"]["template"]["metadata"]["labels"].items()

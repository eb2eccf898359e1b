"""Installed, upgraded and uninstalled by Helm on a real API server."""

from __future__ import annotations

import base64
import re
import shutil

import pytest
import yaml
from chart_helm import CHART, helm

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLAIMS = f"{CRDS}/modelclaims.model.aibrix.ai"


@pytest.fixture
def api(fresh_api):
    # Definitions that go right after they came can stay in deletion for minutes ("could not list instances: storage is
    # (re)initializing", Kubernetes 1.37), so none is handed on from test to test.
    return fresh_api


@pytest.fixture
async def release(fresh_api_server, api):
    """``release(verb, *words)`` of Helm in a namespace of its own."""
    namespace = "aibrix"
    await api.ask(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )

    def run(verb, *words):
        own = ["--kubeconfig", str(fresh_api_server.kubeconfig), "--namespace", namespace]
        return helm(verb, "aibrix", *words, *own)

    run.namespace = namespace
    return run


async def token_of(api, release):
    _, secret = await api.ask("GET", f"/api/v1/namespaces/{release.namespace}/secrets/aibrix-runtime-token")
    return base64.b64decode(secret["data"]["token"])


def earlier(folder):
    """This chart as an earlier version, whose claims had no printer columns and no floor in their schema."""
    chart = shutil.copytree(CHART, folder / "earlier")
    described = chart / "Chart.yaml"
    described.write_text(re.sub(r"^version: .*$", 'version: "0.7.0"', described.read_text(), flags=re.MULTILINE))
    file = chart / "files" / "crds" / "model.aibrix.ai_modelclaims.yaml"
    definition = yaml.safe_load(file.read_text())
    (version,) = definition["spec"]["versions"]
    version.pop("additionalPrinterColumns")
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["perGPU"]["properties"].pop("kvFloor")
    spec["properties"]["perGPU"].pop("required", None)
    file.write_text(yaml.safe_dump(definition))
    return chart


async def test_an_upgrade_brings_the_definitions_and_keeps_the_token(release, api, tmp_path):
    release("install", str(earlier(tmp_path)))
    _, before = await api.ask("GET", CLAIMS)
    token = await token_of(api, release)
    assert re.fullmatch(rb"[A-Za-z0-9]{48}", token)
    release("upgrade", str(CHART), "--set", "redis.enabled=true")
    _, after = await api.ask("GET", CLAIMS)
    assert "kvFloor" not in str(before)
    assert "kvFloor" in str(after)
    assert after["metadata"]["labels"]["helm.sh/chart"] != before["metadata"]["labels"]["helm.sh/chart"]
    assert await token_of(api, release) == token


async def test_redis_keeps_its_password_too(release, api):
    release("install", str(CHART), "--set", "redis.enabled=true")
    path = f"/api/v1/namespaces/{release.namespace}/secrets/aibrix-redis"
    _, before = await api.ask("GET", path)
    release("upgrade", str(CHART), "--set", "redis.enabled=true", "--set", "redis.maxMemory=1gb")
    _, after = await api.ask("GET", path)
    assert after["data"]["password"] == before["data"]["password"]
    assert after["data"]["redis.conf"] != before["data"]["redis.conf"]
    password = base64.b64decode(after["data"]["password"])
    assert b":" + password + b"@aibrix-redis." in base64.b64decode(after["data"]["url"])


async def test_definitions_outlive_the_release_unless_told_otherwise(release, api):
    release("install", str(CHART))
    release("uninstall")
    assert (await api.ask("GET", CLAIMS))[0] == 200
    # The same release takes its own up again.
    release("install", str(CHART), "--set", "crds.keep=false")
    release("uninstall")
    status, answer = await api.ask("GET", CLAIMS)
    assert status == 404 or "deletionTimestamp" in answer["metadata"]


async def test_nothing_of_the_release_is_left_behind(release, api):
    release("install", str(CHART), "--set", "redis.enabled=true")
    release("uninstall")
    roles = "/apis/rbac.authorization.k8s.io/v1"
    own = f"namespaces/{release.namespace}"
    for path in (
        f"/api/v1/{own}/secrets",
        f"/api/v1/{own}/services",
        f"/api/v1/{own}/serviceaccounts",
        f"/apis/apps/v1/{own}/deployments",
        f"/apis/networking.k8s.io/v1/{own}/networkpolicies",
        f"/apis/policy/v1/{own}/poddisruptionbudgets",
        f"{roles}/{own}/roles",
        f"{roles}/clusterroles?labelSelector=app.kubernetes.io/instance%3Daibrix",
    ):
        _, found = await api.ask("GET", path)
        assert found["items"] == [], path

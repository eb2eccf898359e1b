"""Every query of the dashboard answers on a real Prometheus that has scraped a sandbox in which things happen."""

import json
import os
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import dashboard
import prometheus
import pytest

from aibrix_operator.api import names
from aibrix_operator.sandbox import gateways, operators, up
from aibrix_operator.sandbox.kubectl import Kubectl
from aibrix_operator.sandbox.pool import POOL

pytestmark = pytest.mark.integration
WITHIN_S = 60


@pytest.fixture(scope="module")
def busy_sandbox(redis_server):
    """Two claims that serve, and two that wait; a warmup; a gateway with a Redis."""
    prometheus.find()  # before anything is started
    options = up.Options(gateways=1, gateway_options=[["--redis-url", redis_server.url]])
    made = up.up(f"whole-{os.getpid()}-2", options)
    try:
        furnish(Kubectl(made.kubeconfig), gateways.list_gateways(made)[0].url)
        yield made
    finally:
        up.down(made.name)


def furnish(kubectl, url):
    for name in ("awake", "wakened"):
        kubectl.apply(manifest(name, "30Gi"))
        kubectl.run("wait", f"modelclaim/{name}", "--for=jsonpath={.status.phase}=Active", f"--timeout={WITHIN_S}s")
    kubectl.apply(manifest("huge", "600Gi"))
    kubectl.apply(manifest("waits", "60Gi"))
    pool = "resource-pool.aibrix.ai/name=lat"
    kubectl.run("label", "namespace", "default", pool)
    kubectl.run("label", "nodes", "--all", pool, "model.aibrix.ai/warmup-enabled=true")
    node = kubectl.get("nodes")["items"][0]["metadata"]["name"]
    kubectl.apply(warmup(node))
    for model, count in (("awake", 20), ("wakened", 3), ("nobody", 1)):
        for _ in range(count):
            ask(url, model)


def manifest(name, footprint):
    return {
        "apiVersion": f"{names.MODEL_GROUP}/{names.MODEL_VERSION}",
        "kind": "ModelClaim",
        "metadata": {"name": name},
        "spec": {
            "podSelector": {"matchLabels": {names.POOL_LABEL: POOL}},
            "artifactURL": f"huggingface://example/{name}",
            "perGPU": {"maximumFootprint": footprint, "kvFloor": "10Gi"},
        },
    }


def warmup(node):
    return {
        "apiVersion": f"{names.MODEL_GROUP}/{names.MODEL_VERSION}",
        "kind": "ModelWarmup",
        "metadata": {"name": "warm"},
        "spec": {
            "targets": [{"nodes": {"names": [node]}}],
            "imagePreload": {"images": [{"image": "example/engine:1", "command": ["true"]}]},
        },
    }


def ask(url, model):
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Who are you?"}]}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def test_every_query_of_the_dashboard_answers(busy_sandbox, tmp_path):
    host = [urlsplit(operator.url).netloc for operator in operators.list_operators(busy_sandbox)]
    gateway = gateways.list_gateways(busy_sandbox)[0]
    pods = up.status(busy_sandbox.name).pods
    jobs = {
        "operator": ("/metrics", host),
        "gateway": ("/metrics", [urlsplit(gateway.api_url).netloc]),
        "sidecar": ("/metrics/", [f"{pod.address}:8080" for pod in pods if pod.processes]),
    }
    with prometheus.scraping(tmp_path, jobs) as server:
        server.until(lambda: server.are_up(3), "operator, gateway and sidecar answer")
        ask(gateway.url, "awake")
        expressions = dashboard.queries()
        unanswered = list(expressions)
        server.until(lambda: not ask_again(server, unanswered), "every query answers")
        served = dict(expressions)
        [(_, leading)] = server.query(served["Leading"])
        [(_, serving)] = server.query(served["Serving"])
        [(_, waiting)] = server.query(served["Without a card"])
        [(_, broken)] = server.query(served["Laws broken"])
    assert (leading, serving, waiting, broken) == (1, 2, 2, 0)


def ask_again(server, unanswered):
    """Takes off the list what is answered now; what is left of it."""
    unanswered[:] = [(title, expression) for title, expression in unanswered if not server.query(expression)]
    return unanswered

"""What every other story here stands on: Pods run, and find each other by address, Service and name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.api import ApiServer, Refused
from e2e.cluster import pods
from e2e.nodes.provider import Cluster


@pytest.fixture(scope="module")
def namespace(api: ApiServer) -> Iterator[str]:
    yield pods.make_namespace(api, "real-nodes")
    api.delete("/api/v1/namespaces/real-nodes")


@pytest.fixture(scope="module")
def web(api: ApiServer, cluster: Cluster, namespace: str) -> str:
    """A Service in front of a Pod on the last node."""
    serve = ["/bin/sh", "-c", "echo it answers > /tmp/index.html && exec httpd -f -p 8080 -h /tmp"]
    made = pods.pod("web", serve, node=cluster.nodes[-1], labels={"app": "web"})
    made["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    assert pods.start(api, namespace, made)["status"]["phase"] == "Running"
    ports = [{"port": 80, "targetPort": 8080}]
    spec = {"type": "NodePort", "selector": {"app": "web"}, "ports": ports}
    return api.create(f"/api/v1/namespaces/{namespace}/services", {"metadata": {"name": "web"}, "spec": spec})["spec"][
        "clusterIP"
    ]


def test_a_pod_under_restricted_runs_on_each_node(api: ApiServer, cluster: Cluster, namespace: str):
    for node in cluster.nodes:
        assert pods.run(api, namespace, "cat /proc/sys/kernel/ostype", node=node) == (0, "Linux\n")


def test_a_pod_that_is_not_restricted_is_refused(api: ApiServer, namespace: str):
    made = pods.pod("root", ["/bin/sh"])
    made["spec"]["containers"][0]["securityContext"] = {}
    with pytest.raises(Refused, match="violates PodSecurity"):
        api.create(f"/api/v1/namespaces/{namespace}/pods", made)


@pytest.mark.parametrize("number", [0, -1], ids=["from-the-other-node", "from-its-own-node"])
def test_a_service_answers_by_address_and_by_name(
    api: ApiServer, cluster: Cluster, namespace: str, web: str, number: int
):
    for address in (web, "web", "web.real-nodes.svc.cluster.local"):
        script = f"for n in 1 2 3 4 5 6 7 8 9; do timeout 2 wget -qO- http://{address}/ && exit; sleep 1; done; exit 1"
        assert pods.run(api, namespace, script, node=cluster.nodes[number]) == (0, "it answers\n")


def test_a_name_that_nobody_has_is_not_found(api: ApiServer, namespace: str):
    status, said = pods.run(api, namespace, "nslookup nobody.real-nodes.svc.cluster.local")
    assert status == 1
    assert "NXDOMAIN" in said

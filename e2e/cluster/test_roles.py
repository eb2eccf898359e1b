"""A StormService on real nodes: Pods of two roles, on different nodes, find each other by the headless Service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aibrix_operator.api import orchestration
from e2e import pool as words
from e2e.api import ApiServer, eventually
from e2e.cluster import pods
from e2e.cluster.conftest import FirstInstall
from e2e.nodes.provider import Cluster

# Each Pod tells its role on port 8080, and is ready once it has heard of both roles from whom the Service names.
_MEET = """
mkdir -p /tmp/web && echo $ROLE_NAME > /tmp/web/role && httpd -p 8080 -h /tmp/web
while true; do
  heard=" "
  for address in $(nslookup $STORM_SERVICE_NAME.roles.svc.cluster.local | sed -n '/^Name/,$s/^Address: //p'); do
    heard="$heard$(timeout 2 wget -qO- http://$address:8080/role) "
  done
  case "$heard" in *" prefill "*) case "$heard" in *" decode "*) touch /tmp/met;; esac;; esac
  sleep 1
done
"""


@pytest.fixture(scope="module")
def namespace(api: ApiServer) -> Iterator[str]:
    yield pods.make_namespace(api, "roles")
    api.delete("/api/v1/namespaces/roles")


def role(name: str, node: str, replicas: int, **more: Any) -> dict[str, Any]:
    made = pods.pod("", ["/bin/sh", "-c", _MEET], node=node)
    spec = made["spec"] | {"restartPolicy": "Always", "volumes": [{"name": "tmp", "emptyDir": {}}]}
    spec["containers"][0] |= {
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "readinessProbe": {"exec": {"command": ["/bin/cat", "/tmp/met"]}, "periodSeconds": 1},
    }
    return {
        "name": name,
        "replicas": replicas,
        "template": {"metadata": {"labels": {"app": "met"}}, "spec": spec},
        **more,
    }


def test_pods_of_two_roles_meet_and_have_names_that_stay(
    api: ApiServer, cluster: Cluster, namespace: str, first_install: FirstInstall
):
    roles = [role("prefill", cluster.nodes[0], 1), role("decode", cluster.nodes[-1], 2, stateful=True)]
    template = {"metadata": {"labels": {"app": "met"}}, "spec": {"roles": roles}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "met"}}, "template": template}
    path = f"/apis/{orchestration.API_VERSION}/namespaces/{namespace}/stormservices"
    kind = {"apiVersion": orchestration.API_VERSION, "kind": "StormService"}

    api.create(path, {**kind, "metadata": {"name": "met"}, "spec": spec})

    def ready() -> bool:
        condition = words.conditions(api.get(f"{path}/met")).get("Ready", {})
        return condition.get("status") == "True"

    eventually("every Pod has met both roles", ready, 90.0)
    found = api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={orchestration.STORM_LABEL}=met")["items"]
    assert len({pod["status"]["podIP"] for pod in found}) == 3
    assert {pod["spec"]["nodeName"] for pod in found} == set(cluster.nodes)
    for pod in found:
        if pod["metadata"]["labels"][orchestration.ROLE_LABEL] == "decode":
            address = f"{pod['spec']['hostname']}.met.{namespace}.svc.cluster.local"
            script = f"timeout 5 wget -qO- http://{address}:8080/role"
            assert pods.run(api, namespace, script) == (0, "decode\n")

    api.delete(f"{path}/met")
    eventually("its Pods are gone", lambda: not _of_the_service(api, namespace), 60.0)
    eventually("and itself", lambda: not api.exists(f"{path}/met"))


def _of_the_service(api: ApiServer, namespace: str) -> list[Any]:
    selector = f"{orchestration.STORM_LABEL}=met"
    found: list[Any] = []
    for kind in ("/api/v1/namespaces/{}/pods", "/api/v1/namespaces/{}/services"):
        found += api.get(f"{kind.format(namespace)}?labelSelector={selector}")["items"]
    return found

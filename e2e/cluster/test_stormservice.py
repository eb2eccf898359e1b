"""A StormService on real nodes: Pods of two roles find each other by the headless Service of its name."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.api import ApiServer, eventually
from e2e.cluster import pods
from e2e.cluster.conftest import FirstInstall

_STORMS = "/apis/orchestration.aibrix.ai/v1alpha1/namespaces/{}/stormservices"
# Serve the role's name, and write down what every Pod behind the service's name answers. nslookup of busybox knows no
# search domains; wget does.
_SCRIPT = """
echo $ROLE_NAME $ROLE_REPLICA_INDEX > /tmp/index.html
httpd -p 8080 -h /tmp
while :; do
  found=$(nslookup $STORM_SERVICE_NAME.storm.svc.cluster.local)
  for address in $(echo "$found" | awk '/^Name/ {named = 1} named && /^Address/ {print $NF}')
  do timeout 2 wget -qO- http://$address:8080/ && timeout 2 wget -qO- http://$HOSTNAME.$STORM_SERVICE_NAME:8080/
  done
  sleep 1
done
"""


def _role(name: str, replicas: int) -> dict[str, Any]:
    made = pods.pod("unnamed", ["/bin/sh", "-c", _SCRIPT])["spec"]
    made.pop("restartPolicy")
    made["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    container = made["containers"][0]
    container["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    container["readinessProbe"] = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    return {"name": name, "replicas": replicas, "stateful": True, "template": {"spec": made}}


@pytest.fixture(scope="module")
def namespace(api: ApiServer, first_install: FirstInstall) -> Iterator[str]:
    """Given: the operator, as Helm installs it."""
    yield pods.make_namespace(api, "storm")
    api.delete("/api/v1/namespaces/storm")


def _is_ready(api: ApiServer, namespace: str) -> bool:
    storm = api.get(f"{_STORMS.format(namespace)}/pd")
    status = storm.get("status", {})
    return status.get("observedGeneration") == storm["metadata"]["generation"] and any(
        c["type"] == "Ready" for c in status.get("conditions", ())
    )


def _pods(api: ApiServer, namespace: str) -> list[dict[str, Any]]:
    found = api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector=storm-service-name=pd")["items"]
    return sorted(found, key=lambda p: p["metadata"]["name"])


def test_pods_of_two_roles_see_each_other_and_one_roles_change_leaves_the_other(api: ApiServer, namespace: str):
    template = {"metadata": {"labels": {"app": "pd"}}, "spec": {"roles": [_role("prefill", 2), _role("decode", 1)]}}
    spec = {"mode": "Pooled", "selector": {"matchLabels": {"app": "pd"}}, "template": template}
    body = {
        "apiVersion": "orchestration.aibrix.ai/v1alpha1",
        "kind": "StormService",
        "metadata": {"name": "pd"},
        "spec": spec,
    }
    api.create(_STORMS.format(namespace), body)
    eventually("the service is ready", lambda: _is_ready(api, namespace), 60.0)
    found = _pods(api, namespace)
    assert len(found) == 3
    everybody = {"prefill 0", "prefill 1", "decode 0"}
    for pod in found:
        log = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/log"
        eventually(f"{log} names all", lambda log=log: everybody <= set(api.text(log).splitlines()), 30.0)
    decode = {p["metadata"]["uid"] for p in found if p["metadata"]["labels"]["role-name"] == "decode"}
    changed = copy.deepcopy(template)
    changed["spec"]["roles"][0]["template"]["metadata"] = {"annotations": {"changed": "yes"}}
    api.patch(f"{_STORMS.format(namespace)}/pd", {"spec": {"template": changed}})
    eventually("the update is over", lambda: _is_ready(api, namespace) and _are_changed(api, namespace), 120.0)
    assert {p["metadata"]["uid"] for p in _pods(api, namespace)} >= decode
    api.delete(f"{_STORMS.format(namespace)}/pd")
    eventually("nothing is left", lambda: not _pods(api, namespace), 60.0)


def _are_changed(api: ApiServer, namespace: str) -> bool:
    found = [p for p in _pods(api, namespace) if p["metadata"]["labels"]["role-name"] == "prefill"]
    return len(found) == 2 and all(p["metadata"]["annotations"].get("changed") == "yes" for p in found)

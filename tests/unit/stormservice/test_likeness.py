"""What counts as a difference beyond images, and what is the API server's doing."""

from __future__ import annotations

import copy

import pytest

from aibrix_operator.stormservice import likeness, render

RENDERED = {
    "metadata": {"labels": {"app": "pd", "role-template-hash": "new"}, "annotations": {"mine": "1"}},
    "spec": {
        "containers": [
            {
                "name": "engine",
                "image": "engine:2",
                "env": [
                    {"name": "ROLE_TEMPLATE_HASH", "value": "new"},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                ],
                "ports": [{"containerPort": 8000}],
                "resources": {"limits": {"cpu": "1"}},
                "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
                "volumeMounts": [{"name": "config", "mountPath": "/config"}],
            }
        ],
        "initContainers": [{"name": "init", "image": "init:1"}],
        "volumes": [{"name": "config", "configMap": {"name": "c"}}],
        "subdomain": "pd",
    },
}


def stored():
    """The same Pod as the API server and admission give it back, with the image of before."""
    live = copy.deepcopy(RENDERED)
    live["metadata"] |= {"name": "p", "uid": "u"}
    live["metadata"]["labels"] |= {"role-template-hash": "old", "added": "by-somebody"}
    spec = live["spec"]
    token = {
        "name": "kube-api-access-x",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    }
    for container in (*spec["containers"], *spec["initContainers"]):
        container |= {
            "imagePullPolicy": "IfNotPresent",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
        container["volumeMounts"] = [*container.get("volumeMounts", ()), token]
        container.setdefault("resources", {})
    engine = spec["containers"][0]
    engine["image"] = "engine:1"
    engine["env"][0]["value"] = "old"
    engine["env"][1]["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    engine["ports"][0]["protocol"] = "TCP"
    engine["resources"]["requests"] = {"cpu": "1"}
    engine["readinessProbe"] |= {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    engine["readinessProbe"]["httpGet"]["scheme"] = "HTTP"
    spec["volumes"][0]["configMap"]["defaultMode"] = 420
    spec["volumes"].append({"name": "kube-api-access-x", "projected": {"sources": [], "defaultMode": 420}})
    spec |= {
        "nodeName": "n1",
        "hostname": "p",
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "enableServiceLinks": True,
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{state}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for state in ("not-ready", "unreachable")
        ],
    }
    return live


@pytest.mark.acceptance("SS-34")
def test_what_the_api_server_fills_in_is_no_difference():
    assert likeness.difference(RENDERED, stored()) == ""
    assert likeness.changed_images(RENDERED, stored()) == {"engine": "engine:2"}


def test_a_preference_for_nodes_of_ours_is_no_difference():
    live = stored()
    render.prefer_nodes(live["spec"], ["n1"])
    assert likeness.difference(RENDERED, live) == ""
    required = {"nodeSelectorTerms": [{"matchExpressions": []}]}
    live["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required
    assert "affinity" in likeness.difference(RENDERED, live)


def _set(path, value):
    def change(rendered):
        *way, last = path
        for key in way:
            rendered = rendered[key]
        rendered[last] = value

    return change


@pytest.mark.acceptance("SS-33")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set(("spec", "containers", 0, "command"), ["serve"]), "spec.containers"),
        (_set(("spec", "containers", 0, "env"), []), "spec.containers"),
        (_set(("spec", "containers", 0, "resources"), {"limits": {"cpu": "2"}}), "spec.containers"),
        (_set(("spec", "containers", 0, "imagePullPolicy"), "Always"), "spec.containers"),
        (_set(("spec", "initContainers", 0, "image"), "init:2"), "spec.initContainers"),
        (_set(("spec", "volumes"), []), "spec.volumes"),
        (_set(("spec", "tolerations"), [{"key": "gpu"}]), "spec.tolerations"),
        (_set(("spec", "nodeSelector"), {"a": "b"}), "spec.nodeSelector"),
        (_set(("metadata", "labels", "app"), "other"), "label app"),
        (_set(("metadata", "annotations", "mine"), "2"), "annotation mine"),
    ],
)
def test_more_than_images_is_named(change, said):
    rendered = copy.deepcopy(RENDERED)
    change(rendered)
    assert said in likeness.difference(rendered, stored())


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("engine", "Always"),
        ("engine:latest", "Always"),
        ("engine:1", "IfNotPresent"),
        ("r:5000/engine", "Always"),
        ("engine@sha256:0", "IfNotPresent"),
    ],
)
def test_the_default_pull_policy_follows_the_image(image, policy):
    rendered, live = copy.deepcopy(RENDERED), stored()
    rendered["spec"]["containers"][0]["image"] = live["spec"]["containers"][0]["image"] = image
    live["spec"]["containers"][0]["imagePullPolicy"] = policy
    assert likeness.difference(rendered, live) == ""

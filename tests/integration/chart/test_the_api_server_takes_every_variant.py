"""Each variant is sent to a real API server as a dry run, with strict fields, into namespaces under `restricted`."""

from __future__ import annotations

import asyncio

import pytest
import yaml
from chart_helm import CHART, NAMESPACE, render
from chart_variants import VARIANTS

DRY = "?dryRun=All&fieldValidation=Strict"
FOREIGN = [
    ("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"),
    ("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
]
"""Kinds of others that some variants use. Only their names are known here: their schemas are not checked."""
WARM_POOL = CHART.parents[1] / "examples" / "warm-pool.yaml"
CLAIM = CHART.parents[1] / "examples" / "modelclaim.yaml"


def definition(group, version, kind, plural):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in of a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def restricted(name):
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")},
        },
    }


@pytest.fixture
async def cluster(api):
    """Namespaces and stand-ins, made by whichever test comes first."""
    for name in {NAMESPACE, "aibrix-system", "pool-a", "pool-b"}:
        status, answer = await api.create(restricted(name))
        assert status in (201, 409), answer.get("message")
    for foreign in FOREIGN:
        status, answer = await api.create(definition(*foreign))
        assert status in (201, 409), answer.get("message")
    for group, version, _, plural in FOREIGN:
        async with asyncio.timeout(30):
            while (await api.ask("GET", f"/apis/{group}/{version}/{plural}"))[0] != 200:  # noqa: ASYNC110 - theirs
                await asyncio.sleep(0.02)
    return api


def pods_of(objects):
    """Each Deployment's Pods: the API server enforces Pod Security on them, and only warns about a Deployment."""
    for obj in objects:
        if obj["kind"] == "Deployment":
            template = obj["spec"]["template"]
            metadata = {**template["metadata"], "name": "dry", "namespace": obj["metadata"]["namespace"]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.parametrize("name", VARIANTS)
async def test_every_object_and_every_pod_is_taken(cluster, name):
    objects = render(VARIANTS[name]).objects
    for obj in [*objects, *pods_of(objects)]:
        status, answer = await cluster.create(obj, DRY)
        # 409: another test really installed the definitions.
        assert status == 201 or (status == 409 and obj["kind"] == "CustomResourceDefinition"), answer.get("message")


async def test_the_example_of_a_warm_pool_is_taken_under_restricted_too(cluster):
    pool = yaml.safe_load(WARM_POOL.read_text())
    pool["metadata"]["namespace"] = "pool-a"
    for obj in [pool, *pods_of([pool])]:
        status, answer = await cluster.create(obj, DRY)
        assert status == 201, answer.get("message")


async def test_a_pod_that_is_not_restricted_is_refused_here(cluster):
    """The other tests could not fail otherwise."""
    (pod, *_) = pods_of(render().objects)
    del pod["spec"]["securityContext"]["seccompProfile"]
    for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]:
        del container["securityContext"]["seccompProfile"]
    status, answer = await cluster.create(pod, DRY)
    assert status == 403
    assert 'violates PodSecurity "restricted' in answer["message"]


async def test_a_field_that_is_none_is_refused_here(cluster):
    service = render().one("Service", "aibrix-gateway")
    status, answer = await cluster.create({**service, "spec": {**service["spec"], "prots": []}}, DRY)
    assert status == 400
    assert 'unknown field "spec.prots"' in answer["message"]

"""What the API server takes for a ModelAdapter, and what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import MODEL_ADAPTERS
from aibrix_operator.sandbox import crds

pytestmark = pytest.mark.integration

SPEC: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "base"}}, "artifactURL": "huggingface://org/sql"}


@pytest.fixture
async def send(api_server, namespace):
    """Create one; what the API server made of it."""
    async with await Cluster.connect(api_server.kubeconfig) as cluster:
        await crds.apply_crds(cluster)

        async def send(name="sql", **spec):
            whole = {key: value for key, value in (copy.deepcopy(SPEC) | spec).items() if value is not None}
            body = {"apiVersion": "model.aibrix.ai/v1alpha1", "kind": "ModelAdapter"}
            body |= {"metadata": {"name": name}, "spec": whole}
            return await cluster.create(MODEL_ADAPTERS, namespace, body)

        yield send


@pytest.mark.acceptance("MA-01")
@pytest.mark.parametrize("url", ["s3://b/p", "gcs://b/p", "tos://b/p", "huggingface://o/n", "hf://o/n", "/abs/path"])
async def test_these_addresses_are_taken(send, url):
    assert (await send(artifactURL=url))["spec"]["artifactURL"] == url


@pytest.mark.acceptance("MA-01")
@pytest.mark.parametrize(
    "url",
    ["aabbcc", "", None, "ms://o/n", "gs://b/p", "https://h/p", "http://h/p", "hugingface://o/n", "s3://", "hf:///n"],
)
async def test_these_addresses_are_refused(send, url):
    with pytest.raises(errors.Invalid, match="artifactURL"):
        await send(artifactURL=url)


@pytest.mark.acceptance("MA-01")
@pytest.mark.parametrize("replicas", [0, -1, 1001])
async def test_these_replicas_are_refused(send, replicas):
    with pytest.raises(errors.Invalid, match="replicas"):
        await send(replicas=replicas)


@pytest.mark.acceptance("MA-01")
async def test_replicas_above_one_and_an_empty_selector_are_taken(send):
    made = await send(replicas=2, podSelector={})
    assert (made["spec"]["replicas"], made["spec"]["podSelector"]) == (2, {})
    assert made["spec"]["schedulerName"] == "default"


@pytest.mark.acceptance("MA-01")
async def test_a_missing_selector_is_refused(send):
    with pytest.raises(errors.Invalid, match="podSelector"):
        await send(podSelector=None)


@pytest.mark.acceptance("MA-33")
@pytest.mark.parametrize("name", ["a.b", "1a", "a" * 64])
async def test_names_that_no_service_can_have_are_refused(send, name):
    with pytest.raises(errors.Invalid, match=r"metadata\.name must be at most 63"):
        await send(name)


async def test_the_longest_name_is_taken(send):
    assert (await send("a" * 63))["metadata"]["name"] == "a" * 63


@pytest.mark.parametrize("expression", [{"key": "a", "operator": "Foo"}, {"key": "a", "operator": "In"}])
async def test_selectors_that_say_nothing_are_refused(send, expression):
    with pytest.raises(errors.Invalid, match="matchExpressions"):
        await send(podSelector={"matchExpressions": [expression]})

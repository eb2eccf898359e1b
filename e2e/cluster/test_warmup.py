"""A ModelWarmup on real nodes: containerd runs its images, a custom action and a fetch, and its Jobs do not stay."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.api import ApiServer, eventually
from e2e.cluster import images, pods
from e2e.cluster.conftest import FirstInstall
from e2e.nodes.provider import Cluster
from e2e.nodes.tools_image import TOOLS_IMAGE

POOL, ENABLED = "resource-pool.aibrix.ai/name", "model.aibrix.ai/warmup-enabled"
MODEL_BYTES = 1_000_000


@pytest.fixture
def open_nodes(api: ApiServer, cluster: Cluster) -> Iterator[tuple[str, ...]]:
    """All nodes are open to warmups of the pool `warm`, until the story is over."""
    for node in cluster.nodes:
        api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {POOL: "warm", ENABLED: "true"}}})
    yield tuple(cluster.nodes)
    for node in cluster.nodes:
        api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {POOL: None, ENABLED: None}}})


def warmup(name: str, folder: str) -> dict[str, Any]:
    """A tool's image, an action that makes a model on the node, and a fetch of that model into the cache."""
    script = f"mkdir -p /made/model && head -c {MODEL_BYTES} /dev/zero > /made/model/weights.bin"
    action: dict[str, Any] = {"name": "make", "image": TOOLS_IMAGE, "command": ["/bin/sh", "-c", script]}
    action |= {"volumeMounts": [{"name": "made", "mountPath": "/made"}], "securityContext": {"runAsUser": 0}}
    made = {"name": "made", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}
    artifact = {"url": f"{folder}/model", "path": "org/model"}
    return {
        "apiVersion": "model.aibrix.ai/v1alpha1",
        "kind": "ModelWarmup",
        "metadata": {"name": name},
        "spec": {
            "targets": [{"nodeSelector": {"matchLabels": {POOL: "warm"}}}],
            "imagePreload": {"images": [{"image": TOOLS_IMAGE, "command": ["/bin/true"]}]},
            "custom": {"initContainers": [action], "volumes": [made]},
            "weights": {"image": images.OPERATOR, "artifacts": [artifact], "hostPath": f"{folder}/cache"},
            "policies": {"ttlSecondsAfterFinished": 3, "jobTimeoutSeconds": 90},
        },
    }


def test_nodes_have_what_a_warmup_brought_and_its_jobs_vanish(
    first_install: FirstInstall, api: ApiServer, open_nodes: tuple[str, ...]
):
    namespace = pods.make_namespace(api, "warmups", {POOL: "warm"})
    folder = f"/var/lib/aibrix-e2e-{uuid.uuid4().hex[:8]}"
    path = f"/apis/model.aibrix.ai/v1alpha1/namespaces/{namespace}/modelwarmups"
    api.create(path, warmup("whole", folder))

    def is_over() -> Any:
        status = api.get(f"{path}/whole").get("status", {})
        return status if status.get("completionTime") else None

    status = eventually("the warmup is over", is_over, 120.0)
    told = [(target["nodeName"], target["reason"], target["message"]) for target in status["targets"]]
    assert (status["phase"], told) == ("Succeeded", [])
    assert status["progress"] == f"{len(open_nodes)}/{len(open_nodes)}"
    assert status["fetchedBytes"] == MODEL_BYTES * len(open_nodes)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    eventually("its Jobs are gone", lambda: not api.get(jobs)["items"], 30.0)
    eventually("its Pods are gone", lambda: not api.get(f"/api/v1/namespaces/{namespace}/pods")["items"], 30.0)
    for node in open_nodes:
        made = pods.pod(f"look-{node}", ["/bin/sh", "-c", "ls -a /cache/org/model; rm -rf /all/*"], node=node)
        made["spec"]["volumes"] = [{"name": "all", "hostPath": {"path": folder}}]
        container = made["spec"]["containers"][0]
        container["volumeMounts"] = [
            {"name": "all", "mountPath": "/cache", "subPath": "cache"},
            {"name": "all", "mountPath": "/all"},
        ]
        container["securityContext"] = {"runAsUser": 0}
        ended, said = pods._run(api, namespace, made)
        assert ended == 0
        assert {"weights.bin", ".aibrix_download_complete"} <= set(said.split())

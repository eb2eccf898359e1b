"""A node is drained: claims move, or say why they cannot, and who is elsewhere notices nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aibrix_operator.api.modelclaim import Reason
from e2e import pool as words
from e2e.api import ApiServer, Refused, eventually
from e2e.cluster.asking import Client
from e2e.cluster.conftest import FirstInstall
from e2e.cluster.release import Releases
from e2e.cluster.warm_pool import WarmPool
from e2e.nodes.provider import Cluster


@pytest.fixture
def drained(api: ApiServer, cluster: Cluster) -> Iterator[str]:
    """The name of a node, which takes Pods again afterwards."""
    name = cluster.nodes[0]
    yield name
    api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": False}})


def drain(api: ApiServer, node: str) -> None:
    """As `kubectl drain`: no new Pods, then an eviction of each, tried again while a budget forbids it."""
    api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    def evict_all() -> bool:
        left = api.get(f"/api/v1/pods?fieldSelector=spec.nodeName={node}")["items"]
        for pod in left:
            if "deletionTimestamp" not in pod["metadata"]:
                _evict(api, pod["metadata"])
        return not left

    eventually(f"{node} is empty", evict_all, 90.0)


def _evict(api: ApiServer, metadata: dict[str, Any]) -> None:
    named = {"name": metadata["name"], "namespace": metadata["namespace"]}
    path = f"/api/v1/namespaces/{named['namespace']}/pods/{named['name']}/eviction"
    try:
        api.create(path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named})
    except Refused as error:
        if error.status not in (404, 429):  # gone already, or its budget is used up for the moment
            raise


def test_claims_move_from_a_drained_node_or_say_why_not(
    api: ApiServer, cluster: Cluster, releases: Releases, first_install: FirstInstall, drained: str
):
    elsewhere = cluster.nodes[-1]
    # Three pools: one on the other node, one that may go there, one that may not.
    steady = WarmPool.create(api, "steady", replicas=1, node=elsewhere)
    moving = WarmPool.create(api, "moving", replicas=1, preferred=drained)
    pinned = WarmPool.create(api, "pinned", replicas=1, node=drained)
    for pool in (steady, moving, pinned):
        pool.apply(pool.name, f"{pool.name}-model")
    for pool in (steady, moving, pinned):
        pool.wait_active(pool.name)
    (before,) = moving.pods()
    assert before["spec"]["nodeName"] == drained
    gateway = releases.gateway()
    eventually("the gateway knows it", lambda: gateway.chat("steady-model").status == 200)

    with Client(gateway, "steady-model") as client:
        drain(api, drained)
        eventually("the claim has left", lambda: _place(moving) not in (None, before["metadata"]["name"]), 60.0)
        moving.wait_active("moving")
        releases.wait_available()

    (after,) = moving.pods()
    assert (after["spec"]["nodeName"], _place(moving)) == (elsewhere, after["metadata"]["name"])
    assert gateway.chat("moving-model").status == 200
    left = eventually("pinned waits", lambda: (c := pinned.claim("pinned")) and words.phase(c) == "Pending" and c)
    assert words.reason(left, "Scheduled") == Reason.NO_MATCHING_PODS
    assert words.message(left, "Scheduled")
    assert client.asked > 20
    assert client.failed == []

    api.patch(f"/api/v1/nodes/{drained}", {"spec": {"unschedulable": False}})
    pinned.wait_active("pinned")
    for pool in (steady, moving, pinned):
        pool.remove()


def _place(pool: WarmPool) -> str | None:
    """The Pod that the pool's claim of the same name is on."""
    instances = pool.claim(pool.name).get("status", {}).get("instances") or [{}]
    return instances[0].get("pod")

"""Roles scaled and repaired: lost, failed and stray Pods, other group sizes, nodes of before, topology."""

from __future__ import annotations

import json

import pytest
from storm_cluster import PODS, PODSETS, ROLESETS, played, role, storm

from aibrix_operator.api import orchestration
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import key_of


def pooled(*roles, **roleset):
    return storm("pd", *roles, mode="Pooled", roleset=roleset)


def slots(cluster, name="a"):
    return sorted(p["metadata"]["labels"].get(orchestration.REPLICA_INDEX, "?") for p in cluster.pods(name))


@pytest.mark.acceptance("SS-41")
@played()
async def test_a_lost_slot_is_filled_and_the_last_goes_first(cluster):
    cluster.apply(pooled(role("a", 3, stateful=True)))
    await cluster.until(cluster.is_ready)
    cluster.store.delete(PODS, key_of(cluster.pods()[1]))
    await cluster.run(0.5)
    await cluster.until(lambda: cluster.is_ready() and slots(cluster) == ["0", "1", "2"])
    kept = {p["metadata"]["uid"] for p in cluster.pods()[:2]}
    cluster.edit_role("pd", "a", lambda r: r.update(replicas=2))
    await cluster.until(lambda: cluster.is_ready() and cluster.uids() == kept)


@pytest.mark.acceptance("SS-41")
@played()
async def test_a_pod_without_an_index_is_removed_and_one_that_hangs_holds_its_place(cluster):
    cluster.apply(pooled(role("a", 2, stateful=True)))
    await cluster.until(cluster.is_ready)
    first, second = cluster.pods()
    bad = {orchestration.REPLICA_INDEX: "x"}
    cluster.store.change(PODS, key_of(second), {"metadata": {"labels": bad, "annotations": bad}})
    await cluster.until(lambda: cluster.is_ready() and slots(cluster) == ["0", "1"])
    held = [*first["metadata"]["finalizers"], "test/dead-node"]
    cluster.store.change(PODS, key_of(first), {"metadata": {"finalizers": held}})
    cluster.store.delete(PODS, key_of(first))
    await cluster.run(60)
    assert len(cluster.pods()) == 2


@pytest.mark.acceptance("SS-42")
@pytest.mark.parametrize("stateful", [False, True])
def test_an_ended_pod_is_replaced(stateful):
    @played()
    async def story(cluster):
        cluster.apply(pooled(role("a", 2, stateful=stateful)))
        await cluster.until(cluster.is_ready)
        ended = cluster.pods()[0]
        cluster.kubelet.fail(ended)
        await cluster.run(1)
        await cluster.until(lambda: cluster.is_ready() and ended["metadata"]["uid"] not in cluster.uids())
        assert len(cluster.pods()) == 2
        await cluster.rest()

    story()


@pytest.mark.acceptance("SS-44")
@played()
async def test_another_group_size_removes_our_own_objects_of_the_other_kind_only(cluster):
    cluster.apply(pooled(role("a", 2)))
    await cluster.until(cluster.is_ready)
    ours = cluster.pods()[0]
    foreign = {"metadata": {"name": "foreign", "namespace": "default", "labels": ours["metadata"]["labels"]}}
    cluster.store.put(PODS, {**foreign, "spec": {"containers": []}})
    cluster.edit_role("pd", "a", lambda r: r.update(podGroupSize=2))
    await cluster.until(lambda: len(cluster.store.of(PODSETS)) == 2 and cluster.is_ready())
    assert ours["metadata"]["uid"] not in cluster.uids()
    assert cluster.find(PODS, "foreign")
    cluster.edit_role("pd", "a", lambda r: r.update(podGroupSize=1))
    await cluster.until(lambda: not cluster.store.of(PODSETS) and cluster.is_ready())
    assert cluster.find(PODS, "foreign")
    assert len(cluster.pods()) == 3


@pytest.mark.acceptance("SS-44")
@played()
async def test_a_removed_role_takes_its_pods_along(cluster):
    cluster.apply(pooled(role("a", 1), role("b", 2)))
    await cluster.until(cluster.is_ready)
    kept = cluster.uids("a")
    spec = cluster.find(ROLESETS, cluster.rolesets()[0]["metadata"]["name"])["spec"]
    cluster.edit("pd", template={"spec": {"roles": [r for r in spec["roles"] if r["name"] == "a"]}})
    await cluster.until(lambda: cluster.is_ready() and cluster.uids() == kept)


@pytest.mark.acceptance("SS-45")
@played()
async def test_a_pod_whose_creation_was_not_answered_is_no_second_one_and_no_error(cluster):
    lost = []

    def lose(verb, resource, name, body):
        if verb == "create" and resource == PODS and len(lost) < 3:
            lost.append(name)
            return errors.Unavailable("no answer in time")
        return None

    cluster.store.lost = lose
    cluster.apply(pooled(role("a", 3, stateful=True), role("b", 3)))
    await cluster.until(cluster.is_ready)
    assert lost
    assert len([w for w in cluster.store.writes if w[:2] == ("create", "pods")]) == 6
    assert cluster.condition("ReplicaFailure") is None


# --- nodes of before


HISTORY = {"updateStrategy": {"replacementScheduling": {"historicalNode": {"mode": "Preferred"}}}}


def preferred(pod):
    terms = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return [
        node
        for term in terms.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        for node in term["preference"]["matchExpressions"][0]["values"]
    ]


@pytest.mark.acceptance("HN-01")
@played()
async def test_a_slot_goes_back_to_its_node(cluster):
    cluster.apply(pooled(role("a", 3, stateful=True, **HISTORY)))
    await cluster.until(cluster.is_ready)
    before = {p["metadata"]["labels"][orchestration.REPLICA_INDEX]: p["spec"]["nodeName"] for p in cluster.pods()}
    cluster.set_image("pd", "a", "engine:2")
    await cluster.until(lambda: cluster.is_ready() and cluster.status()["updateRevision"])
    for pod in cluster.pods():
        node = before[pod["metadata"]["labels"][orchestration.REPLICA_INDEX]]
        assert (preferred(pod), pod["spec"]["nodeName"]) == ([node], node)
        [term] = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["weight"] == 100
    await cluster.rest()


@pytest.mark.acceptance("HN-02")
@played()
async def test_a_surge_beside_the_old_pod_and_a_scaled_pool_prefer_nothing(cluster):
    surge = {**HISTORY["updateStrategy"], "maxSurge": 1, "maxUnavailable": 0}
    cluster.apply(pooled(role("a", 1, stateful=True, updateStrategy=surge), role("b", 1, updateStrategy=surge)))
    await cluster.until(cluster.is_ready)
    cluster.edit_role("pd", "b", lambda r: r.update(replicas=2))
    await cluster.until(lambda: cluster.is_ready() and len(cluster.pods("b")) == 2)
    assert [preferred(p) for p in cluster.pods("b")] == [[], []]
    cluster.set_images("pd", "engine:2")
    await cluster.until(
        lambda: cluster.is_ready() and {p["spec"]["containers"][0]["image"] for p in cluster.pods()} == {"engine:2"}
    )
    assert [preferred(p) for p in cluster.pods("a")] == [[]]
    assert all(preferred(p) for p in cluster.pods("b"))


def _bound(worker):
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    worker["template"]["spec"]["affinity"] = affinity
    return {}


def _grouped(worker):
    worker["podGroupSize"] = 2
    return {}


def _kept_together(worker):
    return {"topologyPolicy": {"scope": "Role", "mode": "Required", "key": "kubernetes.io/hostname"}}


@pytest.mark.acceptance("HN-03")
@pytest.mark.parametrize("change", [_bound, _grouped, _kept_together])
def test_where_something_else_decides_no_node_is_preferred(change):
    @played()
    async def story(cluster):
        worker = role("a", 1, stateful=True, **HISTORY)
        roleset = change(worker)
        cluster.apply(pooled(worker, **roleset))
        await cluster.until(cluster.is_ready)
        cluster.set_image("pd", "a", "engine:2")
        await cluster.until(
            lambda: cluster.is_ready() and {p["spec"]["containers"][0]["image"] for p in cluster.pods()} == {"engine:2"}
        )
        assert [preferred(p) for p in cluster.pods()] == [[]] * len(cluster.pods())

    story()


@pytest.mark.acceptance("HN-04")
@played()
async def test_what_was_garbled_is_written_anew_and_what_is_gone_is_dropped(cluster):
    cluster.apply(pooled(role("a", 1, stateful=True, **HISTORY), role("b", 1, **HISTORY), role("c", 1)))
    await cluster.until(cluster.is_ready)
    key = key_of(cluster.rolesets()[0])

    def known():
        return json.loads(cluster.find(ROLESETS, key[1])["metadata"]["annotations"][orchestration.HISTORICAL_NODES])

    await cluster.run(1)
    assert set(known()["replicaSlots"]) == {"a/0"}
    good = known()
    garbage = {"metadata": {"annotations": {orchestration.HISTORICAL_NODES: "{"}}}
    cluster.store.change(ROLESETS, key, garbage)
    await cluster.run(1)
    assert known() == good
    roles = [r for r in cluster.find(ROLESETS, key[1])["spec"]["roles"] if r["name"] != "a"]
    cluster.edit("pd", template={"spec": {"roles": roles}})
    await cluster.until(lambda: known()["replicaSlots"] == {})
    assert "b" in known()["roles"]


@pytest.mark.acceptance("HN-04")
@played()
async def test_nobody_who_asks_not_is_remembered(cluster):
    cluster.apply(pooled(role("a", 1)))
    await cluster.until(cluster.is_ready)
    assert orchestration.HISTORICAL_NODES not in cluster.rolesets()[0]["metadata"]["annotations"]


# --- topology


@pytest.mark.acceptance("TP-01")
@pytest.mark.parametrize(
    ("scope", "labels"),
    [
        ("StormService", {"storm-service-name"}),
        ("RoleSet", {"storm-service-name", "roleset-name"}),
        ("Role", {"storm-service-name", "role-name"}),
    ],
)
@pytest.mark.parametrize("mode", ["Preferred", "Required"])
def test_a_topology_policy_keeps_pods_together(scope, labels, mode):
    @played()
    async def story(cluster):
        policy = {"scope": scope, "mode": mode, "key": "zone"}
        cluster.apply(pooled(role("a", 1), role("b", 1, podGroupSize=2), topologyPolicy=policy))
        await cluster.until(cluster.is_ready)
        for pod in cluster.pods():
            affinity = pod["spec"]["affinity"]["podAffinity"]
            if mode == "Required":
                [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
            else:
                [entry] = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
                assert entry["weight"] == 100
                term = entry["podAffinityTerm"]
            assert term["topologyKey"] == "zone"
            assert term["labelSelector"]["matchLabels"] == {k: pod["metadata"]["labels"][k] for k in labels}

    story()


@pytest.mark.acceptance("TP-01")
@played()
async def test_a_changed_topology_moves_nobody_and_says_so_once(cluster):
    cluster.apply(pooled(role("a", 2)))
    await cluster.until(cluster.is_ready)
    before = cluster.uids()
    spec = cluster.rolesets()[0]["spec"]
    policy = {"scope": "Role", "mode": "Preferred", "key": "zone"}
    cluster.edit("pd", template={"spec": {**spec, "topologyPolicy": policy}})
    await cluster.until(cluster.is_ready)
    await cluster.rest()
    assert cluster.uids() == before
    [(_, message)] = cluster.events("TopologyPolicyPendingPodReplacement")
    assert message.startswith("2 Pods")
    cluster.edit_role("pd", "a", lambda r: r.update(replicas=3))
    await cluster.until(lambda: cluster.is_ready() and len(cluster.pods()) == 3)
    assert sum("affinity" in p["spec"] for p in cluster.pods()) == 1

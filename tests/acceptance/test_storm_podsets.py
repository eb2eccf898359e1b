"""Replicas of several Pods: members under their indexes, repaired by their policy, gone in order."""

from __future__ import annotations

import pytest
from storm_cluster import PODS, PODSETS, played, role, storm

from aibrix_operator.api import orchestration
from aibrix_operator.cluster.resource import key_of


def grouped(size=3, replicas=1, **more):
    worker = role("decode", replicas, podGroupSize=size, **more)
    worker["template"]["spec"]["initContainers"] = [{"name": "init", "image": "init:1"}]
    worker["template"]["spec"]["containers"][0]["env"] = [{"name": "POD_GROUP_SIZE", "value": "9"}]
    return storm("pd", worker, mode="Pooled")


def podset(cluster):
    [found] = cluster.store.of(PODSETS)
    return found


def indexes(cluster):
    return sorted(int(p["metadata"]["labels"][orchestration.POD_GROUP_INDEX]) for p in cluster.pods())


@pytest.mark.acceptance("PS-01")
@played()
async def test_members_carry_their_index_and_the_phase_follows_them(cluster):
    ready = set()
    cluster.kubelet.is_good = lambda pod: pod["metadata"]["labels"][orchestration.POD_GROUP_INDEX] in ready
    cluster.apply(grouped())
    await cluster.until(lambda: len(cluster.pods()) == 3)
    await cluster.run(3)
    made = podset(cluster)
    name = made["metadata"]["name"]
    assert [p["metadata"]["name"] for p in cluster.pods()] == [f"{name}-{i}" for i in range(3)]
    assert made["status"]["phase"] == "Pending"
    for index, phase in (("0", "Running"), ("1", "Running"), ("2", "Ready")):
        ready.add(index)
        cluster.kubelet.set_ready(cluster.pods()[int(index)], True)
        await cluster.run(1)
        status = podset(cluster)["status"]
        assert (status["phase"], status["readyPods"], status["totalPods"]) == (phase, len(ready), 3)
    member = cluster.pods()[1]
    labels = member["metadata"]["labels"]
    assert (labels[orchestration.PODSET_LABEL], labels[orchestration.POD_GROUP_INDEX]) == (name, "1")
    assert (member["spec"]["hostname"], member["spec"]["subdomain"]) == (f"{name}-1", "pd")
    env = [(e["name"], e["value"]) for e in member["spec"]["containers"][0]["env"]]
    group = [("PODSET_NAME", name), ("POD_GROUP_INDEX", "1"), ("POD_GROUP_SIZE", "3")]
    assert env[:3] == group
    assert env[3:] == [
        ("STORM_SERVICE_NAME", "pd"),
        ("ROLESET_NAME", labels["roleset-name"]),
        ("ROLESET_INDEX", "0"),
        ("ROLE_NAME", "decode"),
        ("ROLE_TEMPLATE_HASH", labels["role-template-hash"]),
        ("ROLE_REPLICA_INDEX", "0"),
    ]
    assert [(e["name"], e["value"]) for e in member["spec"]["initContainers"][0]["env"]] == group


@pytest.mark.acceptance("PS-02")
@played()
async def test_a_lost_member_is_made_anew_and_a_restarted_one_beside_it_too(cluster):
    cluster.apply(grouped())
    await cluster.until(cluster.is_ready)
    before = cluster.uids()
    first, second, third = cluster.pods()
    restarted = {"status": {"containerStatuses": [{"name": "engine", "ready": True, "restartCount": 1}]}}
    cluster.store.change(PODS, key_of(first), restarted)
    await cluster.run(10)
    assert cluster.uids() == before
    cluster.store.delete(PODS, key_of(second))
    await cluster.run(1.1)
    await cluster.until(lambda: cluster.is_ready() and len(cluster.uids() - before) == 2)
    assert third["metadata"]["uid"] in cluster.uids()
    assert indexes(cluster) == [0, 1, 2]


@pytest.mark.acceptance("PS-03")
@played()
async def test_recreate_makes_all_anew_once_none_is_left(cluster):
    cluster.apply(grouped())
    await cluster.until(cluster.is_ready)
    before = cluster.uids()
    cluster.store.change(PODSETS, key_of(podset(cluster)), {"spec": {"recoveryPolicy": "Recreate"}})
    cluster.store.delete(PODS, key_of(cluster.pods()[0]))
    mixed = []
    cluster.watchers.append(
        lambda verb, resource, old, new: (
            mixed.append(1) if cluster.uids() & before and cluster.uids() - before else None
        )
    )
    await cluster.run(2)
    await cluster.until(lambda: cluster.is_ready() and not cluster.uids() & before)
    assert mixed == []
    assert cluster.events("RecreatingAllPods")


@pytest.mark.acceptance("PS-04")
@played()
async def test_a_roleset_counts_podsets_and_rolls_them_whole(cluster):
    cluster.apply(grouped(2, 2))
    await cluster.until(cluster.is_ready)
    assert cluster.status()["roleStatuses"][0]["replicas"] == 2
    member = cluster.pods()[0]
    cluster.kubelet.set_ready(member, False)
    await cluster.run(1)
    assert cluster.status()["roleStatuses"][0]["readyReplicas"] == 1
    cluster.kubelet.set_ready(cluster.find(PODS, member["metadata"]["name"]), True)
    await cluster.until(cluster.is_ready)
    before = {p["metadata"]["uid"] for p in cluster.store.of(PODSETS)}
    least = 2

    def changed(verb, resource, old, new):
        nonlocal least
        if resource == PODSETS:
            least = min(least, sum(p.get("status", {}).get("phase") == "Ready" for p in cluster.store.of(PODSETS)))

    cluster.watchers.append(changed)
    cluster.set_image("pd", "decode", "engine:2")
    await cluster.until(
        lambda: cluster.is_ready() and not before & {p["metadata"]["uid"] for p in cluster.store.of(PODSETS)}
    )
    assert least == 1
    assert len(cluster.pods()) == 4
    await cluster.rest()


@pytest.mark.acceptance("PS-05")
@played()
async def test_a_deleted_podset_waits_for_its_members(cluster):
    cluster.apply(grouped(2))
    await cluster.until(cluster.is_ready)
    key = key_of(podset(cluster))
    cluster.kubelet.grace_s = 5.0
    cluster.store.delete(PODSETS, key)
    await cluster.run(3)
    assert orchestration.PODSET_FINALIZER in cluster.find(PODSETS, key[1])["metadata"]["finalizers"]
    assert all("deletionTimestamp" in p["metadata"] for p in cluster.pods())
    await cluster.run(0.5)
    await cluster.until(lambda: cluster.is_ready() and len(cluster.pods()) == 2, 30)


@pytest.mark.acceptance("PS-06")
@played()
async def test_a_smaller_group_loses_its_highest_indexes(cluster):
    cluster.apply(grouped(4))
    await cluster.until(cluster.is_ready)
    kept = {p["metadata"]["uid"] for p in cluster.pods()[:2]}
    cluster.edit_role("pd", "decode", lambda r: r.update(podGroupSize=2))
    await cluster.until(lambda: cluster.uids() == kept and cluster.is_ready())
    assert indexes(cluster) == [0, 1]
    assert podset(cluster)["spec"]["podGroupSize"] == 2

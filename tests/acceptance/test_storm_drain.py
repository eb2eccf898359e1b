"""Pods taken out of service before they are deleted."""

from __future__ import annotations

import pytest
from storm_cluster import PODS, STORMSERVICES, played, role, storm

from aibrix_operator.api import orchestration
from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.cluster.resource import key_of
from aibrix_operator.sim.store import EPOCH, now_s


def draining(cluster):
    return [p for p in cluster.pods() if p["metadata"].get("annotations", {}).get(orchestration.DRAINING) == "true"]


def marks(pod):
    return {k: v for k, v in pod["metadata"]["annotations"].items() if k in orchestration.DRAIN_MARKS}


def pooled(replicas=2, drain=20, **more):
    return storm("pd", role("a", replicas, drain={"timeoutSeconds": drain}, **more), mode="Pooled")


async def scale(cluster, replicas):
    cluster.edit_role("pd", "a", lambda r: r.update(replicas=replicas))
    await cluster.run(1)


@pytest.mark.acceptance("DR-01")
@played()
async def test_a_scaled_in_pod_is_marked_and_lives_its_time(cluster):
    cluster.apply(pooled())
    await cluster.until(cluster.is_ready)
    await scale(cluster, 1)
    began_s = now_s()
    [chosen] = draining(cluster)
    first = marks(chosen)
    assert {k: v for k, v in first.items() if k != orchestration.DRAIN_START} == {
        orchestration.DRAINING: "true",
        orchestration.DRAIN_REASON: "scale-in",
        orchestration.DRAIN_ACTION: "delete",
    }
    for _ in range(6):
        await cluster.run(2.8)
        cluster.store.change(PODS, key_of(cluster.pods()[0]), {"metadata": {"labels": {"touched": str(now_s())}}})
        [still] = draining(cluster)
        assert (still["metadata"]["uid"], marks(still)) == (chosen["metadata"]["uid"], first)
        assert len(cluster.pods()) == 2
        assert cluster.find(PODS, chosen["metadata"]["name"])["status"]["conditions"][1]["status"] == "True"
    await cluster.until(lambda: len(cluster.pods()) == 1)
    assert 19 <= now_s() - began_s + 1 <= 23
    assert chosen["metadata"]["uid"] not in cluster.uids()
    assert [len(cluster.events(r)) for r in ("PodDrainStarted", "PodDrainCompleted")] == [1, 1]
    await cluster.rest()


@pytest.mark.acceptance("DR-02")
@pytest.mark.parametrize("stateful", [False, True])
def test_a_pod_that_is_wanted_again_stays(stateful):
    @played()
    async def story(cluster):
        cluster.apply(pooled(stateful=stateful))
        await cluster.until(cluster.is_ready)
        before = cluster.uids()
        await scale(cluster, 1)
        assert len(draining(cluster)) == 1
        await scale(cluster, 2)
        assert draining(cluster) == []
        assert cluster.uids() == before
        assert len(cluster.events("PodDrainCancelled")) == 1
        await cluster.rest()

    story()


@pytest.mark.acceptance("DR-03")
@played()
async def test_an_update_drains_for_its_own_reason(cluster):
    cluster.apply(pooled(1, 10))
    await cluster.until(cluster.is_ready)
    cluster.set_image("pd", "a", "engine:2")
    await cluster.run(1)
    [old] = draining(cluster)
    assert marks(old)[orchestration.DRAIN_REASON] == "rollout"
    await cluster.until(lambda: cluster.is_ready() and old["metadata"]["uid"] not in cluster.uids())


@pytest.mark.acceptance("DR-03")
@played()
async def test_with_a_surge_the_new_pod_is_ready_before_the_old_one_drains(cluster):
    cluster.apply(pooled(1, 10, updateStrategy={"maxSurge": 1, "maxUnavailable": 0}))
    await cluster.until(cluster.is_ready)
    cluster.set_image("pd", "a", "engine:2")
    await cluster.until(lambda: draining(cluster))
    old, new = sorted(cluster.pods(), key=lambda p: p["spec"]["containers"][0]["image"])
    assert old in draining(cluster)
    assert {c["type"]: c["status"] for c in new["status"]["conditions"]}["Ready"] == "True"
    await cluster.until(lambda: cluster.is_ready() and len(cluster.pods()) == 1)


@pytest.mark.acceptance("DR-04")
@pytest.mark.parametrize("drain", [0, None])
def test_without_a_drain_time_pods_go_at_once(drain):
    @played()
    async def story(cluster):
        cluster.apply(pooled(2, drain) if drain is not None else storm("pd", role("a", 2), mode="Pooled"))
        await cluster.until(cluster.is_ready)
        await scale(cluster, 1)
        await cluster.run(1.5)
        assert len(cluster.pods()) == 1
        assert not cluster.events("PodDrainStarted")

    story()


@pytest.mark.acceptance("DR-04")
@played()
async def test_a_failed_pod_goes_at_once(cluster):
    cluster.apply(pooled())
    await cluster.until(cluster.is_ready)
    failed = cluster.pods()[0]
    cluster.kubelet.fail(failed)
    await cluster.run(3)
    assert failed["metadata"]["uid"] not in cluster.uids()


@pytest.mark.acceptance("DR-04")
@pytest.mark.parametrize(
    ("start", "waits_s", "is_warned"),
    [
        pytest.param("yesterday", 20, True, id="a time that cannot be read begins the drain anew"),
        pytest.param(rfc3339(EPOCH.replace(year=2030)), 60, False, id="a start in the future waits in full"),
    ],
)
def test_a_start_that_makes_no_sense(start, waits_s, is_warned):
    @played()
    async def story(cluster):
        cluster.apply(pooled())
        await cluster.until(cluster.is_ready)
        await scale(cluster, 1)
        await cluster.run(10)
        changed = {"metadata": {"annotations": {orchestration.DRAIN_START: start}}}
        cluster.store.change(PODS, key_of(draining(cluster)[0]), changed)
        await cluster.run(waits_s - 2)
        assert len(cluster.pods()) == 2
        assert bool(cluster.events("PodDrainStateInvalid")) == is_warned
        if is_warned:
            await cluster.until(lambda: len(cluster.pods()) == 1, 5)

    story()


@pytest.mark.acceptance("DR-04")
@played()
async def test_a_drain_goes_on_after_a_restart(cluster):
    cluster.apply(pooled())
    await cluster.until(cluster.is_ready)
    await scale(cluster, 1)
    began_s, [chosen] = now_s(), draining(cluster)
    await cluster.run(8)
    await cluster.kill_operator(cluster.leader)
    await cluster.run(3)
    cluster.start_operator()
    await cluster.until(lambda: len(cluster.pods()) == 1)
    assert now_s() - began_s < 23
    assert chosen["metadata"]["uid"] not in cluster.uids()


@pytest.mark.acceptance("DR-05")
@played()
async def test_a_deleted_service_drains_the_members_of_podsets_only(cluster):
    long = {"drain": {"timeoutSeconds": 30}}
    cluster.apply(storm("pd", role("direct", 1, **long), role("grouped", 1, podGroupSize=2, **long)))
    await cluster.until(cluster.is_ready)
    cluster.store.delete(STORMSERVICES, ("default", "pd"))
    await cluster.run(5)
    assert len(draining(cluster)) == len(cluster.pods("grouped")) == 2
    await cluster.until(lambda: not cluster.pods("grouped"))
    assert now_s() > 30
    await cluster.until(lambda: not cluster.pods())
    assert not any(m.endswith("direct") for _, m in cluster.events("PodDrainStarted"))
    await cluster.until(lambda: not cluster.store.objects)


@pytest.mark.acceptance("DR-06")
@played()
async def test_a_changed_drain_time_counts_from_the_old_start(cluster):
    cluster.apply(pooled(2, 100))
    await cluster.until(cluster.is_ready)
    await scale(cluster, 1)
    began_s = now_s()
    await cluster.run(10)
    cluster.edit_role("pd", "a", lambda r: r.update(drain={"timeoutSeconds": 15}))
    await cluster.until(lambda: len(cluster.pods()) == 1)
    assert 12 <= now_s() - began_s <= 18

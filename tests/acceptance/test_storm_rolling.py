"""Rolling updates of RoleSets: never too many, never too few, stopped by a bad template and mended by a good one."""

from __future__ import annotations

import pytest
from storm_cluster import REVISIONS, ROLESETS, played, role, storm

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import key_of


class Counts:
    """The most RoleSets and the fewest ready ones that there ever were."""

    def __init__(self, cluster):
        self.most, self.fewest = 0, 10**6
        self._cluster = cluster
        cluster.watchers.append(self._changed)

    def _changed(self, verb, resource, old, new):
        if resource == ROLESETS:
            found = self._cluster.store.of(ROLESETS)
            ready = [r for r in found if _is_ready(r) and "deletionTimestamp" not in r["metadata"]]
            self.most, self.fewest = max(self.most, len(found)), min(self.fewest, len(ready))


def _is_ready(roleset):
    conditions = roleset.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def images(cluster):
    return {p["spec"]["containers"][0]["image"] for p in cluster.pods()}


async def settled(cluster, image):
    await cluster.until(lambda: cluster.is_ready() and images(cluster) == {image}, 300)


@pytest.mark.parametrize(
    ("surge", "unavailable", "most", "fewest"),
    [
        pytest.param(1, 0, 4, 3, id="SS-20", marks=pytest.mark.acceptance("SS-20")),
        pytest.param(1, 1, 4, 2, id="SS-21", marks=pytest.mark.acceptance("SS-21")),
        pytest.param("25%", "25%", 4, 3, id="SS-29", marks=pytest.mark.acceptance("SS-29")),
        pytest.param(None, None, 3, 2, id="defaults"),
    ],
)
def test_a_roll_keeps_its_bounds(surge, unavailable, most, fewest):
    @played()
    async def story(cluster):
        strategy = {k: v for k, v in (("maxSurge", surge), ("maxUnavailable", unavailable)) if v is not None}
        cluster.apply(storm("pd", role("a", 2), replicas=3, updateStrategy=strategy))
        await cluster.until(cluster.is_ready)
        first = cluster.status()["currentRevision"]
        counts = Counts(cluster)
        cluster.set_image("pd", "a", "engine:2")
        await settled(cluster, "engine:2")
        assert (counts.most, counts.fewest) == (most, fewest)
        assert first in cluster.names_of(REVISIONS)
        assert cluster.status()["currentRevision"] == cluster.status()["updateRevision"] != first
        await cluster.rest()

    story()


@pytest.mark.acceptance("SS-22")
@played()
async def test_a_lone_roleset_is_gone_before_its_successor_is_made(cluster):
    cluster.apply(storm("pd"))
    await cluster.until(cluster.is_ready)
    [old] = cluster.rolesets()
    held = [*old["metadata"]["finalizers"], "test/hold"]
    cluster.store.change(ROLESETS, key_of(old), {"metadata": {"finalizers": held}})
    cluster.set_image("pd", "worker", "engine:2")
    await cluster.run(30)
    assert [r["metadata"]["name"] for r in cluster.rolesets()] == [old["metadata"]["name"]]
    assert cluster.pods() == []
    left = [f for f in cluster.rolesets()[0]["metadata"]["finalizers"] if f != "test/hold"]
    cluster.store.change(ROLESETS, key_of(old), {"metadata": {"finalizers": left}})
    cluster.store.delete(ROLESETS, key_of(old))
    await settled(cluster, "engine:2")


@pytest.mark.acceptance("SS-23")
@played()
async def test_a_bad_template_stops_at_the_floor_and_goes_first_when_mended(cluster):
    cluster.kubelet.is_good = lambda pod: pod["spec"]["containers"][0]["image"] != "bad"
    cluster.apply(storm("pd", replicas=3, updateStrategy={"maxSurge": 1, "maxUnavailable": 1}))
    await cluster.until(cluster.is_ready)
    counts = Counts(cluster)
    cluster.set_image("pd", "worker", "bad")
    await cluster.run(60)
    assert counts.fewest == 2
    kept = {r["metadata"]["uid"] for r in cluster.rolesets() if _is_ready(r)}
    assert len(kept) == 2
    cluster.set_image("pd", "worker", "engine:3")
    await cluster.run(3)
    assert "bad" not in images(cluster)
    assert kept & {r["metadata"]["uid"] for r in cluster.rolesets()}
    await settled(cluster, "engine:3")
    assert counts.fewest >= 1


@pytest.mark.acceptance("SS-25")
@played(ready_s=5.0)
async def test_growing_during_a_roll_makes_new_ones_only(cluster):
    cluster.apply(storm("pd", replicas=3, updateStrategy={"maxSurge": 1, "maxUnavailable": 0}))
    await cluster.until(cluster.is_ready)
    old = cluster.status()["currentRevision"]
    counts = Counts(cluster)
    cluster.set_image("pd", "worker", "engine:2")
    await cluster.run(2)
    cluster.edit("pd", replicas=5)
    await cluster.run(2)
    assert sum(r["metadata"]["labels"]["storm-service-revision"] == old for r in cluster.rolesets()) <= 3
    await settled(cluster, "engine:2")
    assert counts.most <= 6


@pytest.mark.acceptance("SS-26")
@played()
async def test_a_rollback_reuses_its_revision_and_history_is_bounded(cluster):
    cluster.apply(storm("pd", replicas=1, revisionHistoryLimit=1))
    await cluster.until(cluster.is_ready)
    for image in ("engine:2", "engine:3"):
        cluster.set_image("pd", "worker", image)
        await settled(cluster, image)
    await cluster.run(2)
    numbers = {r["metadata"]["name"]: r["revision"] for r in cluster.store.of(REVISIONS)}
    assert sorted(numbers.values()) == [2, 3]
    second = next(name for name, number in numbers.items() if number == 2)
    cluster.set_image("pd", "worker", "engine:2")
    await settled(cluster, "engine:2")
    numbers = {r["metadata"]["name"]: r["revision"] for r in cluster.store.of(REVISIONS)}
    assert numbers[second] == 4
    assert len(numbers) == 2
    assert cluster.status()["updateRevision"] == second


@pytest.mark.acceptance("SS-26")
@played()
async def test_a_revision_of_another_client_is_renumbered_by_a_patch(cluster):
    """Its data have no blanks, so the API server takes what we would write whole for another's."""

    def immutable(verb, resource, name, body):
        return (
            errors.Invalid("data: field is immutable", status=422)
            if (verb, resource) == ("replace", REVISIONS)
            else None
        )

    cluster.apply(storm("pd"))
    await cluster.until(cluster.is_ready)
    cluster.set_image("pd", "worker", "engine:2")
    await settled(cluster, "engine:2")
    cluster.store.fault = immutable
    cluster.set_image("pd", "worker", "engine:1")
    await settled(cluster, "engine:1")
    assert sorted(r["revision"] for r in cluster.store.of(REVISIONS)) == [2, 3]


@pytest.mark.acceptance("SS-26")
@played()
async def test_revisions_of_another_owner_are_left_alone_and_a_taken_name_is_passed_by(cluster):
    cluster.apply(storm("pd"))
    await cluster.until(cluster.is_ready)
    [ours] = cluster.store.of(REVISIONS)
    cluster.apply(storm("qd"))
    await cluster.until(lambda: cluster.is_ready("qd"))
    theirs = next(r for r in cluster.store.of(REVISIONS) if r["metadata"]["name"] != ours["metadata"]["name"])
    foreign = {
        "metadata": {"name": "rd" + theirs["metadata"]["name"][2:], "namespace": "default", "labels": {"name": "rd"}},
        "data": {},
        "revision": 9,
    }
    cluster.store.put(REVISIONS, foreign)
    cluster.apply(storm("rd"))
    await cluster.until(lambda: cluster.is_ready("rd"))
    assert cluster.status("rd")["collisionCount"] == 1
    assert cluster.status("rd")["updateRevision"] != foreign["metadata"]["name"]
    assert cluster.find(REVISIONS, foreign["metadata"]["name"])["revision"] == 9


@pytest.mark.acceptance("SS-27")
@played()
async def test_what_is_no_template_makes_no_revision(cluster):
    cluster.apply(storm("pd"))
    await cluster.until(cluster.is_ready)
    cluster.edit("pd", replicas=2, paused=True, updateStrategy={"maxSurge": 2}, progressDeadlineSeconds=5)
    await cluster.run(10)
    assert len(cluster.names_of(REVISIONS)) == 1


@pytest.mark.acceptance("SS-28")
@played()
async def test_a_paused_update_waits_scales_in_shares_and_goes_on(cluster):
    cluster.apply(storm("pd", replicas=4, updateStrategy={"maxSurge": 1, "maxUnavailable": 0}))
    await cluster.until(cluster.is_ready)
    old = cluster.status()["currentRevision"]
    cluster.set_image("pd", "worker", "engine:2")
    await cluster.until(lambda: cluster.status()["updatedReadyReplicas"] == 1)
    cluster.edit("pd", paused=True)
    await cluster.run(5)
    shares = [r["metadata"]["labels"]["storm-service-revision"] == old for r in cluster.rolesets()]
    assert cluster.status()["observedGeneration"] == 3
    progressing = cluster.condition("Progressing")
    assert (progressing["status"], progressing["reason"]) == ("Unknown", "DeploymentPaused")
    await cluster.rest(30)
    cluster.edit("pd", replicas=8)
    await cluster.run(10)
    grown = [r["metadata"]["labels"]["storm-service-revision"] == old for r in cluster.rolesets()]
    assert len(grown) == 8
    assert abs(sum(grown) / 8 - sum(shares) / len(shares)) < 0.13
    cluster.edit("pd", paused=False)
    await cluster.run(0.5)
    assert cluster.condition("Progressing")["reason"] in ("DeploymentResumed", "Processing")
    await settled(cluster, "engine:2")


@pytest.mark.acceptance("SS-30")
@pytest.mark.acceptance("SS-39")
@played()
async def test_a_pooled_service_keeps_its_roleset_and_scales_one_role_alone(cluster):
    cluster.apply(storm("pd", role("prefill", 3, stateful=True), role("decode", 2), mode="Pooled"))
    await cluster.until(cluster.is_ready)
    [before] = cluster.rolesets()
    kept = cluster.uids()
    cluster.edit_role("pd", "decode", lambda r: r.update(replicas=4))
    await cluster.until(lambda: cluster.is_ready() and len(cluster.pods("decode")) == 4)
    assert kept < cluster.uids()
    assert len(cluster.names_of(REVISIONS)) == 2
    [after] = cluster.rolesets()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    index = "stormservice.orchestration.aibrix.ai/roleset-index"
    assert after["metadata"]["annotations"][index] == before["metadata"]["annotations"][index] == "0"
    decode = cluster.uids("decode")
    cluster.set_image("pd", "prefill", "engine:2")
    await cluster.until(lambda: cluster.is_ready() and images(cluster) == {"engine:1", "engine:2"})
    assert cluster.uids("decode") == decode
    assert [
        p["metadata"]["labels"]["stormservice.orchestration.aibrix.ai/role-revision"] for p in cluster.pods("prefill")
    ] == ["3"] * 3
    await cluster.rest()


def _orders(cluster):
    """Roles by when the last of their old Pods and the first of their new Pods came."""
    seen = []

    def changed(verb, resource, old, new):
        if resource.plural == "pods" and (old is None or new is None):
            pod = new or old
            seen.append((pod["metadata"]["labels"]["role-name"], "made" if old is None else "gone"))

    cluster.watchers.append(changed)
    return seen


@pytest.mark.acceptance("SS-37")
@played()
async def test_roles_are_updated_in_their_order(cluster):
    roles = [role("decode", 2), role("prefill", 2, upgradeOrder=2), role("router", 1, upgradeOrder=1)]
    cluster.apply(storm("pd", *roles, mode="Pooled"))
    await cluster.until(cluster.is_ready)
    seen = _orders(cluster)
    cluster.set_images("pd", "engine:2")
    await settled(cluster, "engine:2")
    order = list(dict.fromkeys(name for name, _ in seen))
    assert order == ["router", "prefill", "decode"]
    last = {name: max(i for i, (n, _) in enumerate(seen) if n == name) for name in order}
    first = {name: min(i for i, (n, _) in enumerate(seen) if n == name) for name in order}
    assert last["router"] < first["prefill"]
    assert last["prefill"] < first["decode"]


@pytest.mark.acceptance("SS-38")
@played()
async def test_parallel_roles_move_at_once(cluster):
    cluster.apply(storm("pd", role("a", 2), role("b", 2), mode="Pooled", roleset={"updateStrategy": "Parallel"}))
    await cluster.until(cluster.is_ready)
    seen = _orders(cluster)
    cluster.set_images("pd", "engine:2")
    await cluster.run(1.5)
    assert {name for name, _ in seen} == {"a", "b"}
    await settled(cluster, "engine:2")

"""Images changed in running Pods: proven by image IDs, within the floor, in step, and given up where more differs."""

from __future__ import annotations

import pytest
from storm_cluster import PODS, played, role, storm

from aibrix_operator.api import orchestration
from aibrix_operator.cluster.resource import key_of

IN_PLACE = {"updateStrategy": {"type": "InPlaceIfPossible"}}
GATED = {"readinessGates": [{"conditionType": orchestration.IN_PLACE_GATE}]}


def pooled(*roles, **roleset):
    return storm("pd", *roles, mode="Pooled", roleset=roleset)


def image(pod):
    return pod["spec"]["containers"][0]["image"]


def annotation(pod, name):
    return pod["metadata"].get("annotations", {}).get(name)


def condition(pod, type_):
    return next((c["status"] for c in pod["status"]["conditions"] if c["type"] == type_), None)


@pytest.mark.acceptance("SS-31")
@played()
async def test_an_image_changes_in_the_running_pod(cluster):
    cluster.kubelet.pull_s = 5.0
    cluster.apply(pooled(role("a", 1, **IN_PLACE)))
    await cluster.until(cluster.is_ready)
    [before] = cluster.pods()
    cluster.set_image("pd", "a", "engine:2")
    await cluster.run(2)
    [during] = cluster.pods()
    assert (during["metadata"]["uid"], image(during)) == (before["metadata"]["uid"], "engine:2")
    old_hash = before["metadata"]["labels"]["role-template-hash"]
    assert during["metadata"]["labels"]["role-template-hash"] == old_hash
    target = annotation(during, orchestration.IN_PLACE_TARGET)
    assert target not in (None, old_hash)
    assert annotation(during, orchestration.IN_PLACE_PENDING) == "ImageIDUnchanged"
    await cluster.until(cluster.is_ready)
    [after] = cluster.pods()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"]["role-template-hash"] == target
    assert after["metadata"]["labels"][orchestration.ROLE_REVISION] == "2"
    assert not any("in-place" in key for key in after["metadata"].get("annotations", {}))
    assert len(cluster.events("InPlaceUpdateStarted")) == len(cluster.events("InPlaceUpdateCompleted")) == 1
    await cluster.rest()


@pytest.mark.acceptance("SS-32")
@played()
async def test_an_unchanged_image_id_keeps_the_update_open_and_the_gate_closed(cluster):
    cluster.kubelet.ids = lambda image: "sha256:same"
    worker = role("a", 1, **IN_PLACE)
    worker["template"]["spec"] |= GATED
    cluster.apply(pooled(worker))
    await cluster.until(cluster.pods)
    await cluster.until(lambda: condition(cluster.pods()[0], orchestration.IN_PLACE_GATE) == "True", 10)
    cluster.kubelet.set_ready(cluster.pods()[0], True)
    await cluster.until(cluster.is_ready)
    cluster.set_image("pd", "a", "engine:2")
    await cluster.run(120)
    [pod] = cluster.pods()
    assert annotation(pod, orchestration.IN_PLACE_PENDING) == "ImageIDUnchanged"
    assert condition(pod, orchestration.IN_PLACE_GATE) == "False"
    assert condition(pod, "Ready") == "False"
    cluster.kubelet.ids = lambda image: f"sha256:{image}"
    cluster.kubelet.set_ready(pod, True)
    await cluster.until(lambda: condition(cluster.pods()[0], orchestration.IN_PLACE_GATE) == "True")
    cluster.kubelet.set_ready(cluster.pods()[0], True)
    await cluster.until(cluster.is_ready)
    assert {p["metadata"]["uid"] for p in cluster.pods()} == {pod["metadata"]["uid"]}


def _command(spec):
    spec["template"]["spec"]["containers"][0] |= {"image": "engine:2", "command": ["serve"]}


def _init(spec):
    spec["template"]["spec"]["initContainers"][0]["image"] = "init:2"


@pytest.mark.acceptance("SS-33")
@pytest.mark.parametrize("change", [pytest.param(_command, id="command"), pytest.param(_init, id="init image")])
def test_more_than_an_image_replaces_the_pods_of_the_same_roleset(change):
    @played()
    async def story(cluster):
        worker = role("a", 2, **IN_PLACE)
        worker["template"]["spec"]["initContainers"] = [{"name": "init", "image": "init:1"}]
        cluster.apply(pooled(worker))
        await cluster.until(cluster.is_ready)
        before, [roleset] = cluster.uids(), cluster.rolesets()
        cluster.edit_role("pd", "a", change)
        await cluster.until(lambda: cluster.is_ready() and not before & cluster.uids())
        assert [r["metadata"]["uid"] for r in cluster.rolesets()] == [roleset["metadata"]["uid"]]
        assert "falling back to recreate" in cluster.events("InPlaceFallback")[0][1]

    story()


@pytest.mark.acceptance("SS-33")
@played()
async def test_a_role_of_podsets_falls_back(cluster):
    cluster.apply(pooled(role("a", 1, podGroupSize=2, **IN_PLACE)))
    await cluster.until(cluster.is_ready)
    before = cluster.uids()
    cluster.set_image("pd", "a", "engine:2")
    await cluster.until(lambda: cluster.is_ready() and not before & cluster.uids())
    assert cluster.events("InPlaceFallback")


@pytest.mark.acceptance("SS-33")
@played()
async def test_one_pod_that_cannot_makes_the_whole_role_fall_back(cluster):
    cluster.apply(pooled(role("a", 3, **IN_PLACE)))
    await cluster.until(cluster.is_ready)
    before = cluster.uids()
    cluster.store.change(PODS, key_of(cluster.pods()[2]), {"spec": {"nodeSelector": {"drifted": "yes"}}})
    cluster.set_image("pd", "a", "engine:2")
    await cluster.until(lambda: cluster.is_ready() and not before & cluster.uids())


@played()
async def test_where_no_pod_may_be_away_a_surge_replaces_them(cluster):
    strategy = {"updateStrategy": {"type": "InPlaceIfPossible", "maxSurge": 1, "maxUnavailable": 0}}
    cluster.apply(pooled(role("a", 2, **strategy)))
    await cluster.until(cluster.is_ready)
    before = cluster.uids()
    cluster.set_image("pd", "a", "engine:2")
    await cluster.until(lambda: cluster.is_ready() and not before & cluster.uids())
    assert "maxUnavailable 0" in cluster.events("InPlaceFallback")[0][1]


@pytest.mark.acceptance("SS-35")
@pytest.mark.acceptance("SS-36")
@pytest.mark.parametrize("order", ["Sequential", "Interleave"])
def test_at_most_one_of_three_is_updated_at_a_time(order):
    @played()
    async def story(cluster):
        cluster.kubelet.pull_s = 3.0
        cluster.apply(pooled(role("a", 3, **IN_PLACE), updateStrategy=order))
        await cluster.until(cluster.is_ready)
        most = 0

        def changed(verb, resource, old, new):
            nonlocal most
            if resource == PODS:
                most = max(most, sum(annotation(p, orchestration.IN_PLACE_TARGET) is not None for p in cluster.pods()))

        cluster.watchers.append(changed)
        cluster.set_image("pd", "a", "engine:2")
        await cluster.until(lambda: cluster.is_ready() and {image(p) for p in cluster.pods()} == {"engine:2"})
        assert most == 1

    story()


@pytest.mark.acceptance("SS-36")
@played()
async def test_interleaved_roles_advance_in_step(cluster):
    cluster.apply(pooled(role("fast", 2, **IN_PLACE), role("slow", 2, **IN_PLACE), updateStrategy="Interleave"))
    await cluster.until(cluster.is_ready)
    cluster.kubelet.ids = lambda image: f"sha256:{image}" if image != "engine:2" else "sha256:engine:1"
    cluster.set_images("pd", "engine:2")
    cluster.set_image("pd", "fast", "engine:3")
    await cluster.run(20)
    updated = {name: sum(image(p) != "engine:1" for p in cluster.pods(name)) for name in ("fast", "slow")}
    assert updated == {"fast": 1, "slow": 1}
    cluster.kubelet.ids = lambda image: f"sha256:{image}"
    for pod in cluster.pods("slow"):
        cluster.kubelet.set_ready(pod, True)
    await cluster.until(cluster.is_ready)


@played()
async def test_a_template_that_goes_back_before_the_image_was_pulled_ends_where_it_began(cluster):
    cluster.kubelet.pull_s = 30.0
    cluster.apply(pooled(role("a", 1, **IN_PLACE)))
    await cluster.until(cluster.is_ready)
    before = cluster.uids()
    cluster.set_image("pd", "a", "engine:2")
    await cluster.run(3)
    assert image(cluster.pods()[0]) == "engine:2"
    cluster.set_image("pd", "a", "engine:1")
    await cluster.until(lambda: cluster.is_ready() and image(cluster.pods()[0]) == "engine:1", 20)
    assert cluster.uids() == before
    assert annotation(cluster.pods()[0], orchestration.IN_PLACE_TARGET) is None


@played()
async def test_an_operator_that_restarts_in_the_middle_ends_the_update(cluster):
    cluster.kubelet.pull_s = 5.0
    cluster.apply(pooled(role("a", 2, **IN_PLACE)))
    await cluster.until(cluster.is_ready)
    before = cluster.uids()
    cluster.set_image("pd", "a", "engine:2")
    for _ in range(8):
        await cluster.run(1.3)
        await cluster.kill_operator(cluster.leader)
        await cluster.run(0.7)
        cluster.start_operator()
    await cluster.until(lambda: cluster.is_ready() and {image(p) for p in cluster.pods()} == {"engine:2"})
    assert cluster.uids() == before

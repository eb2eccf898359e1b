"""What a StormService makes, and what its status says of it."""

from __future__ import annotations

import re

import pytest
from storm_cluster import PODS, REVISIONS, ROLESETS, SERVICES, STORMSERVICES, played, role, storm

from aibrix_operator.api import orchestration


@pytest.mark.acceptance("SS-01")
@played()
async def test_five_copies_of_two_roles_become_ready_and_scale(cluster):
    cluster.apply(storm("pd", role("prefill", 3), role("decode", 2, stateful=True), replicas=5))
    await cluster.until(cluster.is_ready)
    assert (len(cluster.rolesets()), len(cluster.pods())) == (5, 25)
    status = cluster.status()
    counts = {k: v for k, v in status.items() if k.endswith("eplicas")}
    assert counts == {
        "replicas": 5,
        "readyReplicas": 5,
        "notReadyReplicas": 0,
        "currentReplicas": 5,
        "updatedReplicas": 5,
        "updatedReadyReplicas": 5,
    }
    assert status["currentRevision"] == status["updateRevision"]
    assert cluster.condition("Progressing") is None
    await cluster.rest()
    for wanted in (3, 6):
        cluster.edit("pd", replicas=wanted)
        await cluster.until(lambda wanted=wanted: cluster.is_ready() and cluster.status()["replicas"] == wanted)
        assert len(cluster.pods()) == 5 * wanted
    await cluster.rest()


@pytest.mark.acceptance("SS-02")
@played()
async def test_pods_carry_their_names_labels_and_variables(cluster):
    own = {
        "name": "engine",
        "image": "engine:1",
        "env": [{"name": "A", "value": "$(ROLE_NAME)"}, {"name": "ROLE_NAME"}],
    }
    spec = {"containers": [own], "initContainers": [{"name": "init", "image": "init:1"}]}
    cluster.apply(
        storm(
            "pd",
            role("prefill", 3, stateful=True, template={"metadata": {"labels": {"app": "x"}}, "spec": spec}),
            role("decode", 2),
            mode="Replica",
        )
    )
    await cluster.until(cluster.is_ready)
    [roleset] = cluster.rolesets()
    name, revision = roleset["metadata"]["name"], cluster.status()["updateRevision"]
    assert re.fullmatch(r"pd-roleset-\w+", name)
    assert re.fullmatch(r"pd-[a-z0-9]{6}", revision)
    prefill = cluster.pods("prefill")
    labels = prefill[1]["metadata"]["labels"]
    hash_ = labels["role-template-hash"]
    assert [p["metadata"]["name"] for p in prefill] == [f"{name}-prefill-{hash_}-{i}" for i in range(3)]
    assert labels == {
        "app": "x",
        "roleset-name": name,
        "role-name": "prefill",
        "role-template-hash": hash_,
        "storm-service-name": "pd",
        orchestration.REPLICA_INDEX: "1",
        orchestration.ROLE_REVISION: "1",
        orchestration.ROLE_REVISION_NAME: revision,
    }
    pod = prefill[1]["spec"]
    assert (pod["hostname"], pod["subdomain"]) == (prefill[1]["metadata"]["name"], "pd")
    assert [(e["name"], e.get("value")) for e in pod["containers"][0]["env"]] == [
        ("STORM_SERVICE_NAME", "pd"),
        ("ROLESET_NAME", name),
        ("ROLESET_INDEX", "0"),
        ("ROLE_NAME", "prefill"),
        ("ROLE_TEMPLATE_HASH", hash_),
        ("ROLE_REPLICA_INDEX", "1"),
        ("A", "$(ROLE_NAME)"),
    ]
    assert "env" not in pod["initContainers"][0]
    for decode in cluster.pods("decode"):
        assert re.fullmatch(rf"{name}-decode-\w+", decode["metadata"]["name"])
        assert "hostname" not in decode["spec"]
        assert orchestration.REPLICA_INDEX not in decode["metadata"]["labels"]


@pytest.mark.acceptance("SS-03")
@played(ready_s=30.0)
async def test_the_headless_service_is_there_before_a_pod_is_ready_and_is_mended(cluster):
    cluster.apply(storm("pd"))
    await cluster.until(cluster.pods)
    service = cluster.find(SERVICES, "pd")
    assert service["spec"] == {
        "clusterIP": "None",
        "type": "ClusterIP",
        "selector": {"storm-service-name": "pd"},
        "publishNotReadyAddresses": True,
    }
    cluster.store.change(SERVICES, ("default", "pd"), {"spec": {"selector": {"storm-service-name": None, "app": "x"}}})
    await cluster.run(1)
    assert cluster.find(SERVICES, "pd")["spec"] == service["spec"]
    assert len(cluster.events("HeadlessServiceSynced")) >= 1


@pytest.mark.acceptance("SS-03")
@played()
async def test_a_service_of_somebody_else_is_left_alone_and_reported(cluster):
    theirs = {"metadata": {"name": "pd", "namespace": "default"}, "spec": {"selector": {"app": "other"}}}
    cluster.store.put(SERVICES, theirs)
    cluster.apply(storm("pd"))
    await cluster.run(5)
    assert cluster.find(SERVICES, "pd")["spec"] == theirs["spec"]
    assert "belongs to somebody else" in cluster.condition("ReplicaFailure")["message"]
    cluster.store.delete(SERVICES, ("default", "pd"))
    await cluster.until(cluster.is_ready)
    assert cluster.condition("ReplicaFailure") is None


@pytest.mark.acceptance("SS-04")
@played()
async def test_labels_that_do_not_match_make_nothing_and_say_so(cluster):
    body = storm("pd")
    body["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    cluster.apply(body)
    await cluster.run(10)
    assert cluster.rolesets() == []
    failure = cluster.condition("ReplicaFailure")
    assert (failure["status"], failure["reason"]) == ("True", "Failure")
    assert "does not match" in failure["message"]
    cluster.edit("pd", selector={"matchLabels": {"app": "pd"}})
    await cluster.until(cluster.is_ready)
    assert cluster.condition("ReplicaFailure") is None


@pytest.mark.acceptance("SS-05")
@played()
async def test_omitted_and_zero_replicas(cluster):
    cluster.apply(storm("one", role("worker", None), role("other")))
    cluster.apply(storm("none", replicas=0))
    await cluster.until(lambda: cluster.is_ready("one") and cluster.is_ready("none"))
    assert (cluster.status("one")["replicas"], cluster.status("none")["replicas"]) == (1, 0)
    assert [p["metadata"]["labels"]["role-name"] for p in cluster.pods()] == ["other"]


@pytest.mark.acceptance("SS-06")
@played()
async def test_equal_selectors_share_no_rolesets(cluster):
    for name, namespace in (("a", "default"), ("b", "default"), ("a", "other")):
        body = storm(name, replicas=2)
        body["metadata"]["namespace"] = namespace
        cluster.apply(body)
    await cluster.run(20)
    owned = [(r["metadata"]["namespace"], r["metadata"]["labels"]["storm-service-name"]) for r in cluster.rolesets()]
    assert sorted(owned) == [("default", "a")] * 2 + [("default", "b")] * 2 + [("other", "a")] * 2
    cluster.edit("a", replicas=0)
    await cluster.run(20)
    assert len(cluster.rolesets()) == 4


@pytest.mark.acceptance("SS-07")
@played()
async def test_the_status_sums_roles_and_names_its_pods(cluster):
    cluster.apply(storm("pd", role("prefill", 3), role("decode", 2), replicas=2))
    await cluster.until(cluster.is_ready)
    assert cluster.status()["scalingTargetSelector"] == "storm-service-name=pd"
    assert cluster.status()["roleStatuses"] == [
        {
            "name": name,
            "replicas": n,
            "readyReplicas": n,
            "notReadyReplicas": 0,
            "updatedReplicas": n,
            "updatedReadyReplicas": n,
        }
        for name, n in (("decode", 4), ("prefill", 6))
    ]


@pytest.mark.acceptance("SS-12")
@played()
async def test_long_names_make_short_ones(cluster):
    cluster.apply(storm("s" * 63, role("r" * 63, 2), role("q" * 63, 2, stateful=True)))
    await cluster.until(lambda: cluster.is_ready("s" * 63))
    names = [p["metadata"]["name"] for p in cluster.pods()]
    assert len(set(names)) == 4
    for name in [*names, *cluster.names_of(ROLESETS), *cluster.names_of(REVISIONS)]:
        assert len(name) <= 63
        assert name[0].isalpha()
    for made in (PODS, ROLESETS):
        for obj in cluster.store.of(made):
            assert all(len(value) <= 63 for value in obj["metadata"]["labels"].values())


@pytest.mark.acceptance("SS-13")
@played()
async def test_the_sidecar_comes_first_and_once(cluster):
    body = storm("pd", role("a", image="vllm/vllm-openai:v1"), role("b", image="nginx"))
    cluster.apply(body)
    await cluster.until(cluster.is_ready)
    assert {len(p["spec"]["containers"]) for p in cluster.pods()} == {1}
    asked = {"model.aibrix.ai/sidecar-injection": "", "model.aibrix.ai/sidecar-runtime-image": "mine:2"}
    cluster.store.change(STORMSERVICES, ("default", "pd"), {"metadata": {"annotations": asked}})
    cluster.edit("pd", replicas=2)
    await cluster.until(lambda: cluster.is_ready() and len(cluster.pods()) == 4)
    for pod in cluster.pods():
        first, engine = pod["spec"]["containers"]
        assert (first["name"], first["image"], first["command"]) == (
            "aibrix-runtime",
            "mine:2",
            ["aibrix_runtime", "--port", "8080"],
        )
        guessed = {e["name"]: e["value"] for e in first["env"]}["INFERENCE_ENGINE"]
        assert guessed == ("vllm" if pod["metadata"]["labels"]["role-name"] == "a" else "unknown")
        for container in (first, engine):
            assert container["volumeMounts"] == [{"name": "adapter-storage", "mountPath": "/tmp/aibrix/adapters"}]
        assert pod["spec"]["volumes"] == [{"name": "adapter-storage", "emptyDir": {}}]
    assert len(cluster.names_of(REVISIONS)) == 2


@pytest.mark.acceptance("TD-01")
@played()
async def test_a_deleted_stormservice_leaves_nothing(cluster):
    cluster.apply(storm("pd", role("a", 2), role("b", 2, podGroupSize=2), replicas=2))
    await cluster.until(cluster.is_ready)
    cluster.store.delete(STORMSERVICES, ("default", "pd"))
    await cluster.until(lambda: not any(plural != "events" for plural, _, _ in cluster.store.objects))


@pytest.mark.acceptance("TD-01")
@played()
async def test_a_deletion_while_the_operator_is_away_ends_after_its_return(cluster):
    cluster.apply(storm("pd", role("a", 2)))
    await cluster.until(cluster.is_ready)
    await cluster.kill_operator(cluster.leader)
    cluster.store.delete(STORMSERVICES, ("default", "pd"))
    await cluster.run(30)
    assert cluster.pods()
    cluster.start_operator()
    await cluster.until(lambda: not cluster.store.objects)

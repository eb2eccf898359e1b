"""What Prometheus is told of cards and of claims that wait; in virtual time."""

import asyncio

from simulated import GIB, H20, model, simulated

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.modelclaim import known
from aibrix_operator.modelclaim.card_metrics import OTHER
from aibrix_operator.sim import loop
from aibrix_operator.sim.world import SimulatedCluster


def value(cluster, name, **labels):
    """None where there is no such series."""
    return cluster.world.metrics.registry.get_sample_value(name, labels)


def of_card(cluster, what, pod="warm-0"):
    return value(cluster, f"aibrix_modelclaim_card_{what}", namespace="default", pod=pod)


@simulated
async def test_a_card_is_told_of_as_its_account_has_it(cluster):
    runtime = cluster.add_pod("warm-0", H20)
    for name in "ab":
        cluster.apply(name, "30Gi", "10Gi")
    await cluster.run(20)
    runtime.engines[model("a")].mapped_bytes = 12 * GIB
    await cluster.run(10)
    assert of_card(cluster, "usable_bytes") == H20
    assert of_card(cluster, "promised_bytes") == 80 * GIB
    assert of_card(cluster, "held_bytes") == 82 * GIB
    assert of_card(cluster, "unreadable") == 0
    recorded = cluster.status("a").instances[0].kv_limit_bytes
    assert value(cluster, "aibrix_modelclaim_kv_limit_bytes", namespace="default", model=model("a")) == recorded
    assert value(cluster, "aibrix_modelclaim_claims", namespace="default", phase="Active") == 2


@simulated
async def test_a_card_that_cannot_be_judged_says_so_and_tells_no_size(cluster):
    cluster.add_pod("warm-0", -1)
    await cluster.run(5)
    assert of_card(cluster, "unreadable") == 1
    assert of_card(cluster, "usable_bytes") is None


@simulated
async def test_claims_without_a_card_are_counted_by_their_reason(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.apply("huge", "600Gi", "10Gi")
    cluster.apply("typo", "30m", "10Gi")
    await cluster.run(10)
    for reason in ("TooLargeForAnyCard", "InvalidPerGPU"):
        assert value(cluster, "aibrix_modelclaim_waiting_claims", namespace="default", reason=reason) == 1
    cluster.delete_claim("huge")
    await cluster.run(5)
    assert value(cluster, "aibrix_modelclaim_waiting_claims", namespace="default", reason="TooLargeForAnyCard") is None


@simulated
async def test_what_cannot_be_read_and_pods_of_no_pool_are_in_no_gauge(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.add_pod("other", H20, labels={names.POOL_LABEL: None})
    cluster.label_pod("other", {names.POOL_LABEL: None, names.ENABLED_LABEL: None})
    cluster.store.put(MODEL_CLAIMS, {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"engine": 7}})
    await cluster.run(10)
    claims, unreadable = known.claims(cluster.world)
    assert claims == []
    assert [text.partition(": ")[0] for text in unreadable] == ["default/odd"]
    assert [pod.name for pod in known.pods(cluster.world, claims)] == ["warm-0"]
    assert of_card(cluster, "usable_bytes", pod="other") is None


@simulated
async def test_a_claim_that_nobody_has_tried_to_place_waits_as_not_placed(cluster):
    await cluster.run(1)
    cluster.apply("new", "30Gi", "10Gi")
    await asyncio.sleep(0)
    cluster.world.watched_claims.update({("default", "new"): cluster.store.objects["modelclaims", "default", "new"]})
    assert value(cluster, "aibrix_modelclaim_waiting_claims", namespace="default", reason="NotPlaced") == 1


@simulated
async def test_sleeps_and_wakes_are_counted_for_their_pool(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.set_policy('{"lifecycle": {"sleepAfterSeconds": 30}}')
    cluster.apply("a", "30Gi", "10Gi")
    await cluster.run(90)
    cluster.request_wake("warm-0", "a")
    await cluster.run(10)
    name = "aibrix_modelclaim_pool_policy_actions_total"
    of_pool = {"namespace": "default", "pool": "pool-a", "result": "applied", "reason": "applied"}
    assert value(cluster, name, **of_pool, action="sleep") == 1
    assert value(cluster, name, **of_pool, action="wake") == 1


def test_a_foreign_reason_becomes_no_label_and_a_replica_that_does_not_lead_tells_of_no_card():
    async def story():
        async with SimulatedCluster(operators=2) as cluster:
            cluster.add_pod("warm-0", H20)
            cluster.apply("huge", "600Gi", "10Gi")
            await cluster.run(20)
            assert of_card(cluster, "usable_bytes") == H20
            [other] = [o for o in cluster.operators if not o.is_leader]
            forged = cluster.status("huge").model_dump(mode="json", by_alias=True)
            for condition in forged["conditions"]:
                condition["reason"] = "Forged"
            await cluster.kill_controller(cluster.leader)  # nobody puts it right meanwhile
            cluster.patch_claim("huge", {"status": forged})
            await cluster.run(0.5)
            get = other.world.metrics.registry.get_sample_value
            card = {"namespace": "default", "pod": "warm-0"}
            assert get("aibrix_modelclaim_card_usable_bytes", card) is None
            assert get("aibrix_modelclaim_waiting_claims", {"namespace": "default", "reason": OTHER}) == 1

    loop.run(story())

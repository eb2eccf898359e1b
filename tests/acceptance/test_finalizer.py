"""A claim carries the finalizer from just before anything is recorded for it until its engines were asked to stop."""

import asyncio
from functools import partial

from simulated import CARD_24, model, simulated, starts

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.sim.world import NAMESPACE


@simulated
async def test_a_refused_claim_is_told_in_one_write_and_needs_no_finalizer(cluster):
    cluster.add_pod("warm-0", CARD_24)
    await cluster.run(1)
    cluster.apply("too-large", "30Gi", "1Gi")
    await cluster.run(5)
    assert cluster.condition("too-large", "Scheduled")[1] == "TooLargeForAnyCard"
    assert verbs(cluster, "too-large") == ["status"]
    assert finalizers(cluster, "too-large") == []
    cluster.delete_claim("too-large")
    assert not cluster.exists("too-large")


@simulated
async def test_the_finalizer_is_written_before_the_first_record(cluster):
    cluster.add_pod("warm-0", CARD_24)
    await cluster.run(1)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(5)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert verbs(cluster, "a")[0] == "finalize"


@simulated
async def test_a_finalizer_taken_off_by_another_hand_is_put_back(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(5)
    cluster.patch_claim("a", {"metadata": {"finalizers": None}})
    await cluster.run(1)
    assert finalizers(cluster, "a") == [names.CLAIM_FINALIZER]
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@simulated
async def test_a_claim_deleted_before_its_finalizer_is_written_is_gone_and_its_room_is_free(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    await cluster.run(1)
    when_finalized(cluster, lambda: cluster.delete_claim("a"))
    cluster.apply("a", "20Gi", "1Gi")
    await cluster.run(1)
    cluster.apply("b", "20Gi", "1Gi")
    await cluster.run(10)
    assert not cluster.exists("a")
    assert starts(runtime) == [model("b")]


@simulated
async def test_a_claim_that_cannot_be_written_to_keeps_its_turn_for_ten_seconds(cluster):
    runtime = await two_for_one_card(cluster)
    await cluster.run(8)
    assert starts(runtime) == []
    await cluster.run(4)
    assert starts(runtime) == [model("second")]


@simulated
async def test_a_claim_that_cannot_be_written_to_asks_for_no_pass_once_its_turn_is_over(cluster):
    cluster.add_pod("warm-0", CARD_24)
    await cluster.run(1)
    cluster.store.fault = refuse_writes_of("first")
    cluster.apply("first", "20Gi", "1Gi")
    await cluster.run(12)
    before = cluster.world.passes.passes
    await cluster.run(30)
    assert cluster.world.passes.passes - before < 30


@simulated
async def test_a_claim_that_can_be_written_to_again_is_placed_first(cluster):
    runtime = await two_for_one_card(cluster)
    await cluster.run(3)
    cluster.store.fault = lambda verb, resource, name, body: None
    await cluster.run(8)
    assert starts(runtime) == [model("first")]


async def two_for_one_card(cluster):
    """``first`` and then ``second`` want the only card, and ``first`` cannot be written to."""
    runtime = cluster.add_pod("warm-0", CARD_24)
    await cluster.run(1)
    cluster.store.fault = refuse_writes_of("first")
    cluster.apply("first", "20Gi", "1Gi")
    await cluster.run(1)
    cluster.apply("second", "20Gi", "1Gi")
    return runtime


def refuse_writes_of(claim):
    """The API server takes no write of that claim."""
    refusal = errors.Unavailable("PATCH: HTTP 503: not now", status=503)
    return lambda verb, resource, name, body: refusal if name == claim else None


def when_finalized(cluster, do):
    """Have ``do()`` run right before the first finalizer is written."""
    done = []

    def look(verb, resource, name, body):
        if verb == "finalize" and not done:
            done.append(True)
            do()

    cluster.store.fault = look


def verbs(cluster, claim):
    """Kinds of the writes of one claim, in order."""
    return [v for v, plural, name, _ in cluster.store.writes if plural == MODEL_CLAIMS.plural and name == claim]


def finalizers(cluster, claim):
    """The finalizers that the claim carries."""
    return cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, claim]["metadata"].get("finalizers") or []


@simulated
async def test_a_claim_is_told_where_it_stands_in_one_write_once_the_pods_are_read(cluster):
    cluster.add_pod("warm-0", CARD_24).before_snapshot = partial(asyncio.sleep, 3)
    cluster.apply("too-large", "30Gi", "1Gi")
    await cluster.run(2)
    assert verbs(cluster, "too-large") == []
    await cluster.run(2)
    assert cluster.condition("too-large", "Scheduled")[1] == "TooLargeForAnyCard"
    assert verbs(cluster, "too-large") == ["status"]


@simulated
async def test_a_claim_whose_pods_are_not_read_for_ten_seconds_is_known_meanwhile(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    runtime.before_snapshot = partial(asyncio.sleep, 15)
    cluster.apply("patient", "6Gi", "1Gi")
    await cluster.run(11)
    assert cluster.status("patient").phase == ClaimPhase.PENDING
    assert cluster.condition("patient", "Initialized")[0] == "True"
    runtime.before_snapshot = None
    await cluster.run(10)
    assert cluster.status("patient").phase == ClaimPhase.ACTIVE

"""A card is divided for a newcomer: shrink, see it, record, start. Whatever fails on the way promises nothing twice."""

import pytest
from simulated import CARD_24, GIB, actions, limits, model, reasons, simulated, starts, writes

from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster import errors


def records_when(cluster, runtime, *claims):
    """(call, records of ``claims`` when it arrived) of every later call to the runtime."""
    seen = []

    async def look(call):
        records = {c: i.kv_limit_bytes for c in claims for i in cluster.status(c).instances}
        seen.append((call[:3], records))

    runtime.before_call = look
    return seen


@pytest.mark.acceptance("14")
@simulated
async def test_mc14_a_claim_without_room_says_how_much_it_lacks_and_takes_the_room_of_one_that_goes(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("qwen3-0-6b", "6Gi", "1Gi")
    cluster.apply("qwen25-0-5b", "6Gi", "1Gi")
    await cluster.run(30)
    cluster.apply("third", "10Gi", "1Gi")
    await cluster.run(30)
    assert cluster.status("third").phase == ClaimPhase.PENDING
    assert cluster.condition("third", "Scheduled") == (
        "False",
        "NoMatchingPods",
        (
            "no warm pod can hold this model, which needs 11.0 GiB on a card: warm-0 can offer at most 10.0 GiB, even "
            "with "
            "every engine on it at its floor (the card holds 24.0 GiB, and 14.0 GiB of it is promised to 2 instance(s))"
        ),
    )
    cluster.delete_claim("qwen25-0-5b")
    await cluster.run(5 + 10 + 4)
    assert not cluster.exists("qwen25-0-5b")
    assert cluster.status("third").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("18")
@simulated
async def test_mc18_a_newcomer_is_recorded_before_its_engine_starts_and_its_neighbour_shrunk_before_that(cluster):
    runtime = cluster.add_pod("warm-0", 1000)
    cluster.seat("neighbour", "warm-0", 300, 100, limit_bytes=600, mapped_bytes=100)
    await cluster.run(1)
    seen = records_when(cluster, runtime, "neighbour", "newcomer")
    cluster.apply("newcomer", "300", "100")
    await cluster.run(0.5)
    assert seen == [
        (("kv-limit", model("neighbour"), 200), {"neighbour": 600}),
        (("activate", model("newcomer"), 0), {"neighbour": 200, "newcomer": 200}),
    ]
    assert limits(cluster, "neighbour", "newcomer") == (200, 200)
    assert cluster.events("KVLimitSet") == [
        (
            "KVLimitSet",
            (
                "model model-of-neighbour on pod warm-0: KV limit set to 0.0 GiB, from 0.0 GiB, "
                "dividing the card between 2 engine(s)"
            ),
        )
    ]


@pytest.mark.acceptance("19")
@simulated
async def test_mc19_a_neighbour_that_takes_no_limit_keeps_its_record_and_nothing_starts(cluster):
    runtime = cluster.add_pod("warm-0", 1000, ignores_limits=True)
    cluster.seat("neighbour", "warm-0", 300, 100, limit_bytes=600, mapped_bytes=100)
    await cluster.run(1)
    cluster.apply("newcomer", "300", "100")
    await cluster.run(0.5)
    (_, _, shrink, shrink_id), (_, _, back, back_id) = runtime.calls
    assert (shrink, back) == (200, 600)
    assert shrink_id.startswith("kv-plan/")
    assert back_id.startswith("kv-plan-back/")
    assert limits(cluster, "neighbour") == (600,)
    assert cluster.status("newcomer").instances == ()
    assert cluster.condition("newcomer", "Scheduled") == (
        "False",
        "NoMatchingPods",
        (
            "no warm pod can hold this model, which needs 0.0 GiB on a card: warm-0 has room, but its card could not "
            "be "
            "divided: model-of-neighbour did not take a KV limit of 0.0 GiB"
        ),
    )
    assert ("KVLimitFailed", ("model-of-newcomer could not be held to its share of warm-0: model-of-neighbour did not "
            "take a KV limit of 0.0 GiB")) in cluster.events(claim="newcomer")  # fmt: skip


@pytest.mark.acceptance("19")
@simulated
async def test_mc19_another_pod_with_room_takes_the_newcomer_at_once(cluster):
    stubborn = cluster.add_pod("warm-0", 1000, ignores_limits=True, cached_artifacts=("huggingface://org/newcomer",))
    cluster.seat("neighbour", "warm-0", 300, 100, limit_bytes=600, mapped_bytes=100)
    other = cluster.add_pod("warm-1", 1000)
    await cluster.run(1)
    cluster.apply("newcomer", "300", "100")
    await cluster.run(0.5)
    assert [limit for _, limit in writes(stubborn)] == [200, 600]
    assert starts(stubborn) == []
    assert starts(other) == [model("newcomer")]
    assert cluster.condition("newcomer", "Scheduled") == ("True", "Placed", "placed on pod warm-1")


@pytest.mark.acceptance("20")
@simulated
async def test_mc20_a_neighbour_that_grows_past_its_new_limit_meanwhile_is_not_divided(cluster):
    runtime = cluster.add_pod("warm-0", 1000)
    engine = cluster.seat("neighbour", "warm-0", 300, 100, limit_bytes=600, mapped_bytes=100)
    await cluster.run(1)

    def grow(call):
        if call[2] == 200:
            engine.mapped_bytes = 250

    runtime.after_call = grow
    cluster.apply("newcomer", "300", "100")
    await cluster.run(0.5)
    assert [limit for _, limit in writes(runtime)] == [200, 600]
    assert starts(runtime) == []
    assert limits(cluster, "neighbour") == (600,)
    assert (
        "past the" in cluster.condition("newcomer", "Scheduled")[2]
        or "free, with the rest held by" in (cluster.condition("newcomer", "Scheduled")[2])
    )
    told = [m for _, m in cluster.events("KVLimitFailed", "newcomer")]
    assert told == [
        (
            "model-of-newcomer could not be held to its share of warm-0: model-of-neighbour holds 0.0 GiB, "
            "past the 0.0 GiB it was given"
        )
    ]


@pytest.mark.acceptance("21")
@simulated
async def test_mc21_a_fresh_reading_lies_between_shrink_and_grow_and_the_record_comes_before_the_grow(cluster):
    runtime = cluster.add_pod("warm-0", 1000 * GIB)
    cluster.seat("a", "warm-0", 200 * GIB, 100 * GIB, limit_bytes=400 * GIB, mapped_bytes=100 * GIB)
    cluster.seat("b", "warm-0", 200 * GIB, 100 * GIB, limit_bytes=100 * GIB, mapped_bytes=100 * GIB, running=4)
    shrunk = 100 * GIB + 400 * GIB // 6 + 1  # the odd byte goes to the first name
    grown = 600 * GIB - shrunk
    seen, readings = records_when(cluster, runtime, "a", "b"), []
    look = runtime.before_call

    async def count(call):
        readings.append(runtime.snapshots)
        await look(call)

    runtime.before_call = count
    await cluster.run(1)
    assert seen == [
        (("kv-limit", model("a"), shrunk), {"a": 400 * GIB, "b": 100 * GIB}),
        (("kv-limit", model("b"), grown), {"a": shrunk, "b": grown}),
    ]
    assert readings[1] > readings[0]
    assert [e.limit_bytes for e in runtime.engines.values()] == [shrunk, grown]


@pytest.mark.acceptance("22")
@simulated
async def test_mc22_a_record_that_cannot_be_written_leaves_the_shrink_in_force_and_starts_nothing(cluster):
    runtime = cluster.add_pod("warm-0", 1000)
    cluster.seat("neighbour", "warm-0", 300, 100, limit_bytes=600, mapped_bytes=100)
    await cluster.run(1)

    def refuse(verb, resource, name, body):
        if verb == "status" and name == "neighbour":
            return errors.Unavailable("PATCH modelclaims default/neighbour: HTTP 503: not now", status=503)
        return None

    cluster.store.fault = refuse
    cluster.apply("newcomer", "300", "100")
    await cluster.run(30)
    assert actions(runtime) == [("kv-limit", model("neighbour"), 200)]
    assert limits(cluster, "neighbour") == (600,)
    assert cluster.status("newcomer").instances == ()
    assert runtime.engines[model("neighbour")].limit_bytes == 200
    cluster.store.fault = lambda *call: None
    await cluster.run(60)
    assert limits(cluster, "neighbour", "newcomer") == (200, 200)
    assert cluster.status("newcomer").phase == ClaimPhase.ACTIVE


def refuse_statuses_of(cluster, claim):
    """The API server takes no status of the claim any more."""

    def refuse(verb, resource, name, body):
        if verb == "status" and name == claim:
            return errors.Unavailable(f"PATCH modelclaims default/{claim}: HTTP 503: not now", status=503)
        return None

    cluster.store.fault = refuse


@simulated
async def test_a_neighbour_gets_back_what_was_recorded_for_a_newcomer_that_goes_before_it_is_recorded(cluster):
    runtime = cluster.add_pod("warm-0", 1000)
    cluster.seat("neighbour", "warm-0", 300, 100, limit_bytes=700)
    await cluster.run(15)
    refuse_statuses_of(cluster, "newcomer")
    cluster.apply("newcomer", "300", "100")
    await cluster.run(1)
    assert limits(cluster, "neighbour") == (200,)
    cluster.delete_claim("newcomer")
    await cluster.run(15)
    assert limits(cluster, "neighbour") == (700,)
    assert runtime.engines[model("neighbour")].limit_bytes == 700


@simulated
async def test_a_neighbour_whose_record_fell_for_a_division_that_failed_gets_it_back(cluster):
    runtime = cluster.add_pod("warm-0", 1000)
    for claim in ("first", "second"):
        cluster.seat(claim, "warm-0", 100, 100, limit_bytes=400)
    await cluster.run(15)
    refuse_statuses_of(cluster, "second")
    cluster.apply("newcomer", "100", "100")
    await cluster.run(1)
    assert limits(cluster, "first", "second") == (234, 400)
    runtime.engines[model("second")].limit_bytes = 400  # a user's own write
    cluster.store.fault = lambda *call: None
    await cluster.run(5)
    assert "KVLimitFailed" in reasons(cluster, "newcomer")
    cluster.delete_claim("newcomer")
    await cluster.run(15)
    assert limits(cluster, "first", "second") == (400, 400)
    assert [e.limit_bytes for e in runtime.engines.values()] == [400, 400]


@pytest.mark.acceptance("23")
@simulated
async def test_mc23_a_grow_that_is_not_confirmed_keeps_the_placement_and_the_route_and_the_next_round_finishes_it(
    cluster,
):
    runtime = cluster.add_pod("warm-0", 1000 * GIB)
    cluster.seat("neighbour", "warm-0", 300 * GIB, 100 * GIB, limit_bytes=500 * GIB, mapped_bytes=100 * GIB)
    await cluster.run(1)
    neighbour = runtime.engines[model("neighbour")]
    cluster.patch_claim("neighbour", {"metadata": {"labels": {"look": "again"}}})
    await cluster.run(9)
    neighbour.limit_bytes = 100 * GIB  # a user's own write, far below its record
    runtime.ignores_limits = True
    await cluster.run(10)
    routes = cluster.annotations("warm-0")
    cluster.apply("newcomer", "300Gi", "100Gi")
    await cluster.run(0.5)
    assert starts(runtime) == [model("newcomer")]
    assert limits(cluster, "neighbour", "newcomer") == (200 * GIB, 200 * GIB)
    assert neighbour.limit_bytes == 100 * GIB
    assert cluster.annotations("warm-0").items() >= routes.items()
    runtime.ignores_limits = False
    await cluster.run(25)
    assert neighbour.limit_bytes == 200 * GIB
    assert cluster.status("newcomer").phase == ClaimPhase.ACTIVE
    assert "KVLimitNotHeld" not in reasons(cluster, "neighbour")

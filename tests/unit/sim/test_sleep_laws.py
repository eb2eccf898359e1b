"""The laws of sleeps and wakes catch a controller that breaks them."""

import contextlib

import pytest
from simulated import CARD_24, GIB, model
from sleepers import claim_uid, lending, policy, seat_asleep

from aibrix_operator.api import names
from aibrix_operator.api.route import Route, RouteState
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.client import base_url
from aibrix_operator.runtime_api.outcome import Unknown
from aibrix_operator.sim import loop
from aibrix_operator.sim.order_laws import MadeFor
from aibrix_operator.sim.world import NAMESPACE, LawBroken, SimulatedCluster

WARM_0 = base_url("10.0.0.1")


def broken_by(story):
    """What the laws say of ``async def story(cluster)``, beside a controller that keeps them."""

    async def play():
        async with SimulatedCluster() as cluster:
            cluster.add_pod("warm-0", CARD_24)
            cluster.set_policy(lending())
            cluster.seat("a", "warm-0", 6 * GIB, GIB, limit_bytes=6 * GIB)
            cluster.seat("busy", "warm-0", 8 * GIB, GIB, limit_bytes=3 * GIB, running=1)
            seat_asleep(cluster, "sleeper", "warm-0", 9 * GIB, GIB, limit_bytes=0, asleep_bytes=GIB)
            await cluster.run(3)
            assert cluster.laws.broken == []
            await story(cluster)
            return "\n".join(cluster.laws.broken)

    return loop.run(play())


async def sleep(cluster, claim):
    request = wire.SleepRequest(model_name=model(claim), level=1, operation_id="sleep")
    await cluster.runtimes.sleep(WARM_0, request)


async def wake(cluster, claim, operation_id="wake"):
    await cluster.runtimes.wake(WARM_0, wire.WakeRequest(model_name=model(claim), operation_id=operation_id))


@pytest.mark.parametrize(
    ("claim", "what"),
    [("a", "while it is on the route"), ("busy", "no reading showed it without requests")],
)
def test_a_sleep_of_an_engine_that_may_serve_is_caught(claim, what):
    assert what in broken_by(lambda cluster: sleep(cluster, claim))


@pytest.mark.parametrize(("ago_s", "is_caught"), [(1.0, True), (0.4, False)])
def test_a_route_that_arrived_once_more_is_held_against_a_sleep_once_it_can_be_known(ago_s, is_caught):
    async def routed_by_a_late_write(cluster):
        (pod,) = cluster.laws._pods()
        cluster.laws.annotated_s[pod["metadata"]["uid"]] = cluster.now_s() - ago_s
        await sleep(cluster, "a")

    assert ("while it is on the route" in broken_by(routed_by_a_late_write)) is is_caught


@pytest.mark.parametrize("has_slept", [False, True])
def test_a_sleep_of_an_engine_of_another_kind_is_caught_unless_it_has_slept(has_slept):
    async def of_another_kind(cluster):
        cluster.apply("other", "1Gi", "1Gi", engine="sglang")
        await cluster.run(15)
        runtime = cluster.runtimes.by_ip["10.0.0.1"]
        if has_slept:
            runtime.sleep(model("other"), GIB)
            await cluster.run(15)
            runtime.wake(model("other"))
            await cluster.run(15)
        await sleep(cluster, "other")

    assert ("is no vLLM engine" in broken_by(of_another_kind)) != has_slept


def test_a_wake_that_nobody_asked_for_is_caught():
    assert "nobody asks for it" in broken_by(lambda cluster: wake(cluster, "sleeper"))


def test_a_wake_without_its_seat_free_is_caught():
    assert "limits and footprints with its own seat" in broken_by(lambda cluster: wake(cluster, "sleeper"))


def test_a_second_operation_for_one_request_is_caught():
    async def twice(cluster):
        await wake(cluster, "sleeper", "one/at")
        await wake(cluster, "sleeper", "two/at")

    assert "by 2 operations for one request" in broken_by(twice)


@pytest.mark.parametrize("was_served", [True, False])
def test_a_request_that_stayed_on_its_pod_is_one_more_once_it_was_served(was_served):
    async def again(cluster):
        cluster.request_wake("warm-0", "sleeper", "at")
        await wake(cluster, "sleeper", "pod/claim/at")
        if was_served:
            cluster.laws.served.add(("10.0.0.1", claim_uid(cluster, "sleeper")))
        await wake(cluster, "sleeper", "pod/claim/at/5000")

    broken = broken_by(again)
    assert "nobody asks for it" not in broken
    assert ("by 2 operations for one request" in broken) is not was_served


def test_room_that_a_claim_was_placed_in_and_lost_again_is_nobodys():
    async def loses_its_record(cluster):
        cluster.laws.made_for["warm-0"] = MadeFor(claim_uid(cluster, "a"), model("sleeper"), cluster.now_s())
        version = cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, "a"]["metadata"]["resourceVersion"]
        await cluster.store.patch_status(MODEL_CLAIMS, NAMESPACE, "a", {"instances": None}, version)
        assert cluster.laws.made_for == {}

    broken_by(loses_its_record)


@pytest.mark.parametrize(("ago_s", "is_caught"), [(290.0, True), (300.0, False)])
def test_a_sleep_of_an_engine_that_is_asked_for_is_caught_until_its_request_is_over(ago_s, is_caught):
    async def asked_long_ago(cluster):
        cluster.request_wake("warm-0", "a", "at")
        (pod,) = cluster.laws._pods()
        cluster.laws.asked_s[pod["metadata"]["uid"], "a", "at"] = cluster.now_s() - ago_s
        cluster.laws.annotated_s.clear()  # the controller has known it for as long
        await sleep(cluster, "a")

    assert ("while it is asked for" in broken_by(asked_long_ago)) is is_caught


@pytest.mark.parametrize(("ago_s", "is_caught"), [(0.9, True), (1.0, False)])
def test_a_sleep_is_caught_whose_last_look_came_before_what_gateways_had_sent(ago_s, is_caught):
    async def looked_at_and_unrouted(cluster):
        cluster.laws.unrouted_s["warm-0", "a"] = cluster.laws.told["10.0.0.1"][-1].at_s - ago_s
        await sleep(cluster, "a")

    assert ("without a look after its route went" in broken_by(looked_at_and_unrouted)) is is_caught


@pytest.mark.parametrize("was_sent", [False, True])
def test_a_sleep_beside_another_is_caught_unless_that_one_came_to_nothing(was_sent):
    async def beside_another(cluster):
        laws, told = cluster.laws, cluster.laws.told["10.0.0.1"]
        text = Route(model=model("busy"), port=0, state=RouteState.SLEEPING).to_annotation()
        patch = {"metadata": {"annotations": {names.route_annotation("busy"): text}}}
        cluster.store.change(PODS, (NAMESPACE, "warm-0"), patch)
        laws.unrouted_s["warm-0", "busy"] = told[-1].at_s
        if was_sent:
            laws.sleeps["10.0.0.1", model("busy")] = told[-1]
            laws.answered("10.0.0.1", told[-1].snapshot)
        await sleep(cluster, "a")

    assert ("while busy is on its way there" in broken_by(beside_another)) is not was_sent


@pytest.mark.parametrize(("comes_to_nothing", "is_caught"), [(False, True), (True, False)])
def test_room_that_is_made_for_a_claim_is_dealt_to_nobody_else_unless_the_sleep_comes_to_nothing(
    comes_to_nothing, is_caught
):
    async def made_for_one_that_no_pod_matches(cluster):
        runtime = cluster.runtimes.by_ip["10.0.0.1"]

        async def lose(call):
            return Unknown("no answer") if call[0] == "sleep" and comes_to_nothing else None

        runtime.before_call = lose
        cluster.apply("waiting", "6Gi", "1Gi", podSelector={"matchLabels": {"pool": "another"}})
        request = wire.SleepRequest(
            model_name=model("a"), level=1, operation_id=f"make-room/{claim_uid(cluster, 'waiting')}/1"
        )
        await cluster.runtimes.sleep(WARM_0, request)
        cluster.laws.forgive()  # that nobody chose it
        runtime.engines[model("sleeper")].sleeping_footprint_bytes = GIB // 4  # its card is divided anew
        with contextlib.suppress(LawBroken):
            await cluster.run(2)
        assert cluster.status("busy").instances[0].kv_limit_bytes > 3 * GIB

    assert (
        "is given room on warm-0 that is being made for waiting" in broken_by(made_for_one_that_no_pod_matches)
    ) is is_caught


@pytest.mark.parametrize(
    ("lends", "record", "promised"),
    [
        pytest.param(True, 0, GIB, id="lent"),
        pytest.param(False, 0, GIB, id="lent before its pool ceased to"),
        pytest.param(False, GIB // 2, 9 * GIB + GIB // 2, id="its own, and declared larger since"),
    ],
)
def test_a_sleeper_is_promised_what_it_holds_where_its_seat_was_given_away(lends, record, promised):
    found = []

    async def look(cluster):
        cluster.set_policy(lending() if lends else policy(sleepAfterSeconds=3600))
        instance = cluster.status("sleeper").instances[0].model_copy(update={"kv_limit_bytes": record})
        written = {"status": {"instances": [instance.model_dump(mode="json", by_alias=True)]}}
        cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "sleeper"), written)
        cluster.laws.lent_s = float("-inf")  # the controller has known it for long
        cluster.laws.by_hand.clear()
        found.append(cluster.laws._promised("warm-0", "10.0.0.1"))

    broken_by(look)
    assert found == [(6 + 6 + 8 + 3) * GIB + promised]


@pytest.mark.parametrize("is_asked", [False, True])
def test_who_is_put_back_beside_room_is_caught_unless_another_sleeper_is_asked_for(is_asked):
    async def put_back(cluster):
        cluster.laws.slept.add(("warm-0", claim_uid(cluster, "a")))
        if is_asked:
            cluster.request_wake("warm-0", "sleeper", "at")
        request = wire.SleepRequest(model_name=model("a"), level=1, operation_id="put-back/once")
        await cluster.runtimes.sleep(WARM_0, request)

    assert ("its card has room for it" in broken_by(put_back)) is not is_asked

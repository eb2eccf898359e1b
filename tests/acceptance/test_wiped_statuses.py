"""A claim whose status another hand wipes is adopted where its engine runs, whatever that hand does it for."""

from simulated import CARD_24, GIB, actions, limits, model, simulated
from sleepers import calls, lending, policy, route, seat_asleep, until, when_route_turns

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.sim.world import NAMESPACE


def wipe(cluster, *claims, finalizer=True):
    """A GitOps tool puts the objects back to what its repository says."""
    for claim in claims:
        patch = {"status": None} if finalizer else {"status": None, "metadata": {"finalizers": None}}
        cluster.patch_claim(claim, patch)


def watch_routes(cluster):
    """(claim, route) of every route that is written or taken away from now on."""
    seen = []

    def look(verb, resource, name, body):
        if verb == "annotate":
            seen.extend(body["metadata"]["annotations"].items())

    cluster.store.lost = look
    return seen


async def two_served(cluster, the_policy=None):
    """Claims a and b on one card; its runtime."""
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.add_pod("warm-1", CARD_24)
    cluster.set_policy(the_policy or policy(sleepAfterSeconds=3600))
    for claim in "ab":
        cluster.seat(claim, "warm-0", 6 * GIB, 1 * GIB, limit_bytes=6 * GIB)
    await cluster.run(15)
    runtime.calls.clear()
    return runtime


@simulated
async def test_statuses_wiped_each_minute_change_nothing_for_those_who_are_served(cluster):
    runtime = await two_served(cluster)
    before, seen = [cluster.status(c).instances for c in "ab"], watch_routes(cluster)
    for _ in range(3):
        wipe(cluster, "a", "b")
        await cluster.run(1)
        assert [cluster.status(c).instances for c in "ab"] == before
        assert [cluster.status(c).phase for c in "ab"] == [ClaimPhase.ACTIVE] * 2
        assert cluster.condition("a", "Scheduled")[:2] == ("True", "Placed")
        await cluster.run(59)
    assert (actions(runtime), seen) == ([], [])


@simulated
async def test_who_is_wiped_on_its_way_to_sleep_serves_on_and_is_idle_from_then_on(cluster):
    """Nobody watched its engine while its claim had no record."""
    runtime = await two_served(cluster, policy(sleepAfterSeconds=60))
    when_route_turns(cluster, "sleeping", lambda: wipe(cluster, "a"))
    engine = runtime.engines[model("a")]
    for _ in range(20):
        runtime.engines[model("b")].finished += 1
        await cluster.run(5)
    assert calls(runtime, "sleep") == []
    assert route(cluster, "warm-0", "a") == ("active", engine.port, "")


@simulated
async def test_an_engine_that_is_adopted_below_the_record_that_was_wiped_is_grown_again(cluster):
    runtime = await two_served(cluster)
    runtime.engines[model("a")].limit_bytes = 4 * GIB  # a user's own write
    runtime.ignores_limits = True
    await cluster.run(15)
    runtime.ignores_limits = False
    wipe(cluster, "a")
    await cluster.run(25)
    assert limits(cluster, "a", "b") == (6 * GIB, 6 * GIB)
    assert runtime.engines[model("a")].limit_bytes == 6 * GIB


@simulated
async def test_who_is_called_failed_by_another_hand_serves_on_where_its_engine_runs(cluster):
    runtime = await two_served(cluster)
    cluster.delete_pod("warm-1")  # nobody could take it
    before = cluster.status("a").instances
    (instance,) = cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, "a"]["status"]["instances"]
    cluster.patch_claim("a", {"status": {"instances": [{**instance, "phase": "Failed"}]}})
    await cluster.run(2)
    assert cluster.status("a").instances == before
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert route(cluster, "warm-0", "a")[0] == "active"
    assert actions(runtime) == []
    assert [text for _, text in cluster.events("MoveCalledOff", "a")] == [
        "model model-of-a stays on pod warm-0, where its engine runs"
    ]


@simulated
async def test_a_sleeper_that_another_hand_calls_failed_for_a_reason_to_wait_stays_asleep(cluster):
    runtime = await two_served(cluster)
    cluster.delete_pod("warm-1")
    runtime.sleep(model("a"), runtime.asleep_bytes)
    await cluster.run(30)
    runtime.calls.clear()
    before = cluster.status("a").instances
    (instance,) = cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, "a"]["status"]["instances"]
    forged = {**instance, "phase": "Failed", "reason": "WaitingForRoom"}
    cluster.patch_claim("a", {"status": {"instances": [forged]}})
    await cluster.run(15)
    assert cluster.status("a").instances == before
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    assert (actions(runtime), route(cluster, "warm-0", "a")) == ([], ("sleeping", 0, ""))
    assert [text for _, text in cluster.events("MoveCalledOff", "a")] == [
        "model model-of-a stays on pod warm-0, where its engine runs"
    ]


@simulated
async def test_a_sleeper_whose_status_is_wiped_each_minute_stays_asleep(cluster):
    runtime = await two_served(cluster)
    runtime.sleep(model("a"), runtime.asleep_bytes)
    await cluster.run(30)
    runtime.calls.clear()
    before = cluster.status("a").instances
    for _ in range(3):
        wipe(cluster, "a")
        await cluster.run(60)
        assert cluster.status("a").instances == before
    assert (actions(runtime), route(cluster, "warm-0", "a")) == ([], ("sleeping", 0, ""))
    cluster.request_wake("warm-0", "a")
    await until(cluster, lambda: cluster.status("a").phase == ClaimPhase.ACTIVE, 20)


@simulated
async def test_a_sleeper_that_lent_its_seat_is_adopted_beside_who_took_it(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending())
    cluster.seat("guest", "warm-0", 16 * GIB, 1 * GIB, limit_bytes=6 * GIB)
    seat_asleep(cluster, "lender", "warm-0", 12 * GIB, 1 * GIB, limit_bytes=0, asleep_bytes=GIB)
    await cluster.run(15)
    runtime.calls.clear()
    wipe(cluster, "lender", "guest")
    await cluster.run(60)
    assert cluster.status("lender").phase == ClaimPhase.SLEEPING
    assert cluster.status("guest").phase == ClaimPhase.ACTIVE
    assert calls(runtime, "deactivate", "activate", "sleep") == []


@simulated
async def test_a_wiped_finalizer_comes_back_before_the_record(cluster):
    runtime = await two_served(cluster)
    before, seen = cluster.status("a").instances, watch_routes(cluster)
    wipe(cluster, "a", finalizer=False)
    await cluster.run(5)
    assert cluster.status("a").instances == before
    body = cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, "a"]
    assert body["metadata"]["finalizers"] == [names.CLAIM_FINALIZER]
    assert (actions(runtime), seen) == ([], [])


@simulated
async def test_a_wiped_claim_is_adopted_by_an_operator_that_starts(cluster):
    runtime = await two_served(cluster)
    before = cluster.status("a").instances
    await cluster.stop_controller()
    wipe(cluster, "a")
    cluster.start_controller()
    await cluster.run(30)
    assert cluster.status("a").instances == before
    assert calls(runtime, "activate", "deactivate") == []


@simulated
async def test_an_engine_above_what_its_card_has_beside_others_is_adopted_off_the_route_and_held_to_the_rest(cluster):
    runtime = await two_served(cluster)
    await cluster.stop_controller()
    runtime.engines[model("a")].limit_bytes = CARD_24
    wipe(cluster, "a")
    seen = watch_routes(cluster)
    cluster.start_controller()
    await cluster.run(30)
    assert '"state":"activating"' in seen[0][1]
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert sum(limits(cluster, "a", "b")) <= CARD_24 - 12 * GIB
    assert runtime.engines[model("a")].limit_bytes == cluster.status("a").instances[0].kv_limit_bytes
    assert calls(runtime, "activate", "deactivate") == []


@simulated
async def test_an_engine_that_finds_no_room_where_it_runs_is_stopped_and_its_claim_placed_elsewhere(cluster):
    runtime = await two_served(cluster)
    runtime.engines[model("b")].limit_bytes = CARD_24
    cluster.patch_claim("a", {"status": None, "spec": {"perGPU": {"maximumFootprint": "20Gi", "kvFloor": "1Gi"}}})
    await until(cluster, lambda: cluster.status("a").phase == ClaimPhase.ACTIVE, 60)
    assert [i.pod for i in cluster.status("a").instances] == ["warm-1"]
    await cluster.run(40)
    assert calls(runtime, "deactivate") == [("deactivate", model("a"), 0)]


@simulated
async def test_a_claim_waits_for_a_card_that_cannot_be_measured_for_a_moment(cluster):
    runtime = await two_served(cluster)
    before = cluster.status("a").instances
    runtime.usable_bytes = (-CARD_24,)
    await cluster.run(12)
    wipe(cluster, "a")
    await cluster.run(12)
    assert cluster.status("a").instances == ()
    runtime.usable_bytes = (CARD_24,)
    await cluster.run(15)
    assert cluster.status("a").instances == before
    assert calls(runtime, "activate", "deactivate") == []


@simulated
async def test_a_claim_waits_for_a_runtime_that_is_being_written_to(cluster):
    runtime = await two_served(cluster)
    before = cluster.status("a").instances
    cluster.world.readers[_uid(cluster, "warm-0")].discard()
    wipe(cluster, "a")
    await cluster.run(5)
    assert cluster.status("a").instances == before
    assert calls(runtime, "activate", "deactivate") == []


@simulated
async def test_an_engine_on_a_pod_without_cards_is_adopted_without_a_record(cluster):
    runtime = cluster.add_pod("warm-0", 0, gpus=0)
    cluster.apply("a", "6Gi", "1Gi")
    await until(cluster, lambda: cluster.status("a").phase == ClaimPhase.ACTIVE, 20)
    runtime.calls.clear()
    before = cluster.status("a").instances
    wipe(cluster, "a")
    await cluster.run(40)
    assert (cluster.status("a").instances, actions(runtime)) == (before, [])


@simulated
async def test_a_booting_engine_is_adopted_as_it_boots(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24, boot_s=20.0)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(5)
    wipe(cluster, "a")
    await cluster.run(2)
    assert cluster.status("a").phase == ClaimPhase.ACTIVATING
    assert route(cluster, "warm-0", "a") == ("activating", 0, "")
    await until(cluster, lambda: cluster.status("a").phase == ClaimPhase.ACTIVE, 30)
    assert calls(runtime, "activate", "deactivate") == [("activate", model("a"), 0)]


def _uid(cluster, pod):
    return cluster.store.objects[PODS.plural, NAMESPACE, pod]["metadata"]["uid"]

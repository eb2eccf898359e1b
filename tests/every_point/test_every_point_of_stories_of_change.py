"""Stories of seats that are lent, of engines and Pods that end, and of operators that restart."""

from simulated import CARD_24, GIB, model
from sleepers import lending, policy, seat_asleep
from stories import PATIENCE_S, START_S, story, two_claims


@story("34")
async def test_what_a_sleeper_lent_is_taken_back_before_it_wakes(cluster):
    cluster.add_pod("warm-0", 100 * GIB)
    cluster.set_policy(lending())
    cluster.seat("lender", "warm-0", 30 * GIB, 10 * GIB, limit_bytes=60 * GIB, mapped_bytes=15 * GIB)
    seat_asleep(
        cluster, "waker", "warm-0", 30 * GIB, 10 * GIB, limit_bytes=2 * GIB, asleep_bytes=6 * GIB, mapped_bytes=2 * GIB
    )
    await cluster.run(3)
    cluster.request_wake("warm-0", "waker")


@story("29", "30", "35")
async def test_room_is_made_for_a_claim_and_the_sleeper_is_asked_for_when_it_has_gone(cluster):
    two_claims(cluster)
    cluster.set_policy(lending())
    await cluster.run(40)
    cluster.apply("c", "14Gi", "1Gi")
    await cluster.run(2 * PATIENCE_S)
    cluster.delete_claim("c")
    await cluster.run(PATIENCE_S)
    for claim in "ab":
        if str(cluster.status(claim).phase) == "Sleeping":
            cluster.request_wake("warm-0", claim)


@story("39")
async def test_a_sleeper_that_finds_no_room_moves(cluster):
    cluster.add_pod("warm-0", 100 * GIB)
    cluster.set_policy(lending(make_room_after_s=3600, sleep_after_s=3600))
    busy = cluster.seat("busy", "warm-0", 60 * GIB, 20 * GIB, limit_bytes=34 * GIB, running=1)
    seat_asleep(cluster, "waker", "warm-0", 30 * GIB, 10 * GIB, limit_bytes=0, asleep_bytes=6 * GIB)
    cluster.add_pod("warm-1", 100 * GIB)
    await cluster.run(3)
    cluster.request_wake("warm-0", "waker")
    await cluster.run(PATIENCE_S)
    busy.running = 0


@story("42")
async def test_an_engine_dies_and_comes_back_at_the_default_limit(cluster):
    pod = two_claims(cluster)
    await cluster.run(START_S)
    pod.crash(model("a"), 2.0)


@story("43")
async def test_an_engine_fails_for_good_and_its_claim_moves(cluster):
    pod = two_claims(cluster)
    await cluster.run(START_S)
    cluster.add_pod("warm-1", CARD_24)
    await cluster.run(5)
    pod.fail(model("a"))


@story("43")
async def test_an_engine_fails_for_good_and_nobody_can_take_its_claim(cluster):
    pod = two_claims(cluster)
    await cluster.run(START_S)
    pod.fail(model("a"))


@story("31")
async def test_a_policy_begins_to_lend_and_ends(cluster):
    pod = two_claims(cluster)
    cluster.set_policy(policy(sleepAfterSeconds=3600))
    await cluster.run(START_S)
    pod.sleep(model("a"), pod.asleep_bytes)
    await cluster.run(5)
    cluster.set_policy(lending())
    await cluster.run(PATIENCE_S)
    cluster.set_policy("{not json")
    await cluster.run(PATIENCE_S)
    cluster.set_policy(None)


@story("44")
async def test_a_pod_goes_and_its_claims_are_placed_on_the_next(cluster):
    two_claims(cluster)
    await cluster.run(START_S)
    cluster.delete_pod("warm-0")
    await cluster.run(5)
    cluster.add_pod("warm-1", CARD_24)


@story("45")
async def test_the_operator_restarts_with_one_waiting_one_asked_for_and_one_active(cluster):
    pod = two_claims(cluster)
    cluster.set_policy(policy(sleepAfterSeconds=3600))
    await cluster.run(START_S)
    cluster.apply("c", "15Gi", "1Gi")
    pod.sleep(model("a"), pod.asleep_bytes)
    await cluster.run(10)
    cluster.request_wake("warm-0", "a")
    cluster.add_pod("warm-1", CARD_24)


@story("51")
async def test_a_model_on_two_gpus(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.add_pod("warm-1", CARD_24, CARD_24 - GIB)
    cluster.apply("a", "6Gi", "1Gi", engineConfig={"args": {"--tensor-parallel-size": "2"}})

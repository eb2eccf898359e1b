"""Stories of placing, dividing, sleeping and waking."""

from simulated import CARD_24, GIB, model
from sleepers import policy
from stories import PATIENCE_S, START_S, story, two_claims


@story("1", "2", "13")
async def test_two_claims_share_a_card(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(12)
    cluster.apply("b", "6Gi", "1Gi")


@story("18", "21", "23", "27")
async def test_a_newcomer_takes_room_of_a_neighbour_that_holds_most_of_the_card(cluster):
    cluster.add_pod("warm-0", 100 * GIB)
    cluster.seat("a", "warm-0", 30 * GIB, 10 * GIB, limit_bytes=60 * GIB, mapped_bytes=12 * GIB)
    await cluster.run(3)
    cluster.apply("b", "30Gi", "10Gi")


@story("14", "49")
async def test_a_third_claim_is_refused_and_takes_the_room_of_one_that_goes(cluster):
    two_claims(cluster)
    await cluster.run(START_S)
    cluster.apply("c", "10Gi", "1Gi")
    await cluster.run(START_S)
    cluster.delete_claim("b")


@story("8", "10")
async def test_a_claim_is_declared_anew_until_it_fits_and_a_larger_pod_takes_the_largest(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "0", "1Gi")
    cluster.apply("large", "48Gi", "1Gi")
    await cluster.run(10)
    cluster.patch_claim("a", {"spec": {"perGPU": {"maximumFootprint": "6Gi", "kvFloor": "1Gi"}}})
    await cluster.run(START_S)
    cluster.add_pod("warm-1", 80 * GIB)


@story("25", "49", "50")
async def test_a_claim_is_deleted_while_it_serves_and_its_neighbour_gets_its_room(cluster):
    pod = two_claims(cluster, stop_s=5.0)
    await cluster.run(START_S)
    pod.engines[model("a")].running = 1
    await cluster.run(3)
    cluster.delete_claim("a")
    await cluster.run(20)
    if model("a") in pod.engines:
        pod.engines[model("a")].running = 0


@story("27", "32", "33")
async def test_an_idle_engine_sleeps(cluster):
    pod = two_claims(cluster)
    cluster.set_policy(policy(sleepAfterSeconds=60))
    await cluster.run(START_S)
    pod.engines[model("b")].running = 1
    await cluster.run(2 * PATIENCE_S)


@story("28", "38")
async def test_a_sleeper_is_asked_for_and_wakes(cluster):
    pod = two_claims(cluster, wake_s=4.0)
    cluster.set_policy(policy(sleepAfterSeconds=3600))
    await cluster.run(START_S)
    pod.sleep(model("a"), pod.asleep_bytes)
    await cluster.run(10)
    cluster.request_wake("warm-0", "a")

"""A pool policy is read strictly: with anything wrong in it nobody sleeps and sleepers keep their reserve."""

import pytest
from simulated import CARD_24, GIB, limits, model, simulated
from sleepers import calls, hear, lending, policy, times

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster.resource import DEPLOYMENTS

BAD = {
    "unknown key": ('{"lifecycle":{"sleepAfterSecond":60}}', "unknown_field"),
    "unknown section": ('{"life":{}}', "unknown_field"),
    "both figures 0": ('{"lifecycle":{}}', "invalid_sleep_window"),
    "zero without the switch": ('{"lifecycle":{"sleepAfterSeconds":0}}', "invalid_sleep_window"),
    "negative": ('{"lifecycle":{"sleepAfterSeconds":-1}}', "invalid_sleep_window"),
    "longer than the window": (
        '{"lifecycle":{"sleepAfterSeconds":20,"sleepToMakeRoomAfterSeconds":30}}',
        "invalid_sleep_window",
    ),
    "trailing value": ('{"lifecycle":{"sleepAfterSeconds":60}} {}', "invalid_json"),
    "no JSON": ("sleepAfterSeconds: 60", "invalid_json"),
}


@pytest.mark.acceptance("31")
@pytest.mark.parametrize("case", BAD)
@simulated
async def test_mc31_an_invalid_policy_is_told_once_and_puts_nobody_to_sleep(cluster, case):
    text, error_class = BAD[case]
    runtime = cluster.add_pod("warm-0", CARD_24)
    heard = hear(cluster)
    cluster.set_policy(text)
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(150)
    told = [(n, m) for n, r, m in heard if r == "InvalidPoolPolicy"]
    assert len(told) == 1
    assert told[0][0] == "pool-a"
    start = f"invalid {names.POOL_POLICY_ANNOTATION} annotation ({error_class}), pool policy disabled: "
    assert told[0][1].startswith(start)
    assert len(told[0][1]) > len(start)
    assert calls(runtime, "sleep") == []
    cluster.set_policy(policy(sleepAfterSeconds=60))
    await cluster.run(5)
    assert [(n, m) for n, r, m in heard if r == "PoolPolicyValid"] == [
        ("pool-a", f"{names.POOL_POLICY_ANNOTATION} annotation is valid again, pool policy execution resumed")
    ]
    await cluster.run(60)
    assert calls(runtime, "sleep") != []
    assert times(heard, "PoolPolicyValid") == times(heard, "InvalidPoolPolicy") == 1


@pytest.mark.acceptance("31")
@simulated
async def test_mc31_each_new_mistake_is_told_once(cluster):
    cluster.add_pod("warm-0", CARD_24)
    heard = hear(cluster)
    for text in ("{", "{", '{"lifecycle":{}}', "{"):
        cluster.set_policy(text)
        await cluster.run(30)
    assert times(heard, "InvalidPoolPolicy") == 3


@pytest.mark.acceptance("31")
@simulated
async def test_mc31_sleepers_keep_their_reserve_while_the_policy_cannot_be_read(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy('{"lifecycle":{"sleepAfterSeconds":3600,"noWakeReserveWhileAsleep":true,"more":1}}')
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(15)
    runtime.sleep(model("a"), GIB)
    await cluster.run(5)
    assert limits(cluster, "a", "b") == (GIB, 11 * GIB)
    cluster.apply("c", "12Gi", "1Gi")
    await cluster.run(60)
    assert cluster.status("c").phase == ClaimPhase.PENDING
    assert calls(runtime, "sleep") == []
    cluster.set_policy(lending())
    await cluster.run(60)
    assert cluster.status("c").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("31")
@simulated
async def test_mc31_a_policy_taken_off_is_no_recovery_to_boast_of_and_ends_the_sleeping(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    heard = hear(cluster)
    cluster.set_policy(policy(sleepAfterSeconds=60))
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    cluster.set_policy(None)
    await cluster.run(120)
    assert calls(runtime, "sleep") == []
    assert times(heard, "PoolPolicyValid") == times(heard, "InvalidPoolPolicy") == 0


@pytest.mark.acceptance("31")
@simulated
async def test_mc31_a_pod_whose_deployment_is_not_known_has_no_policy(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(policy(sleepAfterSeconds=60))

    cluster.store.delete(DEPLOYMENTS, ("default", "pool-a"))
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(120)
    assert calls(runtime, "sleep") == []


@simulated
async def test_a_policy_with_only_the_switch_puts_nobody_to_sleep_for_being_idle(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy('{"lifecycle":{"noWakeReserveWhileAsleep":true}}')
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(200)
    assert calls(runtime, "sleep") == []


@simulated
async def test_pods_that_are_not_enabled_are_left_out(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(policy(sleepAfterSeconds=60))
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)
    cluster.label_pod("warm-0", {names.ENABLED_LABEL: None})
    await cluster.run(120)
    assert calls(runtime, "sleep") == []

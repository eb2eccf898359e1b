"""Limits that gateways share, against a real Redis: nobody gets more than the limit, whoever asks."""

import asyncio
import collections

import pytest
from shared_limits import client, gateways, settled, until, verdicts
from traffic_builders import charge, endpoints, rps, user

from aibrix_operator.gateway.limits import keys
from aibrix_operator.gateway.limits.limiter import Denied, Granted, Limit
from aibrix_operator.gateway.limits.slots import Slots

STAYS_MS = 60_000


@pytest.fixture
async def redis(redis_server):
    async with client(redis_server.url) as asking:
        await asking.flushall()
        yield asking


async def stays(redis, key):
    """A window's key lives for the window, in real time, however long the test is kept waiting between two calls."""
    assert await redis.pexpire(key, STAYS_MS), f"{key} is there"


@pytest.fixture
async def gateway(redis, redis_server):
    async with gateways(redis_server.url) as (one,):
        yield one


@pytest.fixture
async def two(redis, redis_server):
    async with gateways(redis_server.url, 2) as both:
        yield both


@pytest.mark.acceptance("GW-80")
async def test_a_model_takes_its_requests_a_second_and_refused_ones_leave_no_trace(gateway, redis):
    key = keys.model_rps("m", 1, 7)
    await gateway.admit(charge(7.1, rps=rps(5)))
    assert 0 < await redis.pttl(key) <= 1000
    await stays(redis, key)
    answers = await gateway.admit_all(charge(7.2, rps=rps(5)) for _ in range(19))
    assert collections.Counter(verdicts(answers)) == {"granted": 4, Limit.MODEL_RPS: 15}
    assert await redis.get(key) == "5"
    assert 1000 < await redis.pttl(key) <= STAYS_MS, "it is set with the first request, and never again"


@pytest.mark.acceptance("GW-80")
async def test_two_gateways_together_grant_no_more_than_the_limit(two):
    answers = [
        answer
        for some in await asyncio.gather(*(g.admit_all(charge(7, rps=rps(5)) for _ in range(20)) for g in two))
        for answer in some
    ]
    assert collections.Counter(verdicts(answers)) == {"granted": 5, Limit.MODEL_RPS: 35}


@pytest.mark.acceptance("GW-81")
async def test_a_refund_goes_to_the_window_that_was_charged_and_never_below_0(gateway, redis):
    first, second = [await gateway.admit(charge(7, rps=rps(5))) for _ in range(2)]
    await stays(redis, keys.model_rps("m", 1, 7))
    gateway.limiter.refund(first, 7.5)
    await settled(gateway)
    assert await redis.get(keys.model_rps("m", 1, 7)) == "1"
    third = await gateway.admit(charge(8, rps=rps(5)))
    await stays(redis, keys.model_rps("m", 1, 8))
    gateway.limiter.refund(second, 8.1)
    await settled(gateway)
    assert [await redis.get(keys.model_rps("m", 1, window)) for window in (7, 8)] == ["0", "1"]
    await redis.set(keys.model_rps("m", 1, 8), 0)
    gateway.limiter.refund(third, 8.2)
    await settled(gateway)
    assert await redis.get(keys.model_rps("m", 1, 8)) == "0"


async def test_a_refund_that_comes_64_windows_late_leaves_the_bins_new_window_alone(gateway, redis):
    early = await gateway.admit(charge(7, rps=rps(5)))
    await stays(redis, keys.model_rps("m", 1, 7))
    now_s = 7 + keys.BINS
    await gateway.admit(charge(now_s, rps=rps(5)))
    gateway.limiter.refund(early, now_s)
    await settled(gateway)
    assert await redis.get(keys.model_rps("m", 1, now_s)) == "2"


@pytest.mark.acceptance("GW-77")
async def test_tokens_are_reserved_and_then_settled_for_what_was_used(two, redis):
    one, other = two
    ann = user(tpm=100)
    first = await one.admit(charge(1, user=ann, tokens=100))
    assert verdicts([await other.admit(charge(1, user=ann, tokens=1))]) == [Limit.TPM]
    one.limiter.settle(first, 30, 2)
    await settled(one)
    second = await other.admit(charge(3, user=ann, tokens=10))
    assert (second.rpm, second.tpm) == (3, 40)
    other.limiter.settle(second, 150, 4)
    await settled(other)
    assert verdicts([await one.admit(charge(5, user=ann))]) == [Limit.TPM]
    key = keys.user_tpm("ann", 0)
    assert await redis.get(key) == "180"
    assert 0 < await redis.ttl(key) <= 60


async def test_tokens_over_the_reserve_of_a_minute_ago_are_charged_now(gateway, redis):
    ann = user()
    short, long = [await gateway.admit(charge(59, user=ann, tokens=50)) for _ in range(2)]
    gateway.limiter.settle(short, 10, 61)
    gateway.limiter.settle(long, 70, 61)
    await settled(gateway)
    assert [await redis.get(keys.user_tpm("ann", minute)) for minute in (0, 1)] == ["60", "20"]


@pytest.mark.acceptance("GW-84")
async def test_two_gateways_hold_no_more_than_the_cap_at_any_endpoint(two):
    pods = endpoints(2)
    charges = [[charge(1, to=pods if n % 2 else pods[::-1], inflight=3) for n in range(50)] for _ in two]
    answers = await asyncio.gather(*(g.admit_all(some) for g, some in zip(two, charges, strict=True)))
    granted = [(g, a) for g, some in zip(two, answers, strict=True) for a in some if isinstance(a, Granted)]
    refused = [a for some in answers for a in some if isinstance(a, Denied)]
    assert collections.Counter(a.endpoint.key for _, a in granted) == {pod.key: 3 for pod in pods}
    assert refused == [Denied(Limit.INFLIGHT)] * 94
    holder, first = granted[0]
    holder.limiter.settle(first, None, 2)
    await settled(holder)
    again = [await g.admit(charge(2, to=pods, inflight=3)) for g in two]
    assert sorted(verdicts(again), key=str) == ["granted", Limit.INFLIGHT]


@pytest.mark.acceptance("GW-85")
async def test_an_endpoint_that_another_gateway_filled_is_passed_over(two):
    one, other = two
    full, free = endpoints(2)
    await one.admit_all(charge(1, to=(full,), inflight=3) for _ in range(3))
    assert (await other.admit(charge(1, to=(full, free), inflight=3))).endpoint is free


async def test_endpoints_beyond_those_of_one_call_are_tried_too_and_rpm_is_spent_once(two, redis):
    one, other = two
    pods = endpoints(40)
    ann = user(rpm=1)
    await one.admit_all(charge(1, to=(pod,), inflight=1) for pod in pods[:-1])
    answer = await other.admit(charge(1, to=pods, inflight=1, user=ann, rps=rps(9)))
    assert (answer.endpoint, answer.rpm) == (pods[-1], 1)
    assert await redis.get(keys.model_rps("m", 1, 1)) == "1"
    assert await redis.get(keys.user_rpm("ann", 0)) == "1"


@pytest.mark.acceptance("GW-87")
async def test_a_request_that_was_counted_before_is_neither_counted_nor_refused_by_rpm_again(two):
    ann = user(rpm=1)
    answers = [
        await gateway.admit(charge(1, user=ann, rpm_is_spent=spent))
        for gateway, spent in zip((*two, *two), (False, True, True, False), strict=True)
    ]
    assert verdicts(answers) == ["granted", "granted", "granted", Limit.RPM]
    assert [answer.rpm for answer in answers[:3]] == [1, 1, 1]


async def test_a_model_over_its_rate_is_told_so_although_all_its_endpoints_are_full_too(gateway):
    limits = {"rps": rps(1), "inflight": 1}
    assert verdicts([await gateway.admit(charge(1, **limits)) for _ in range(2)]) == ["granted", Limit.MODEL_RPS]


@pytest.mark.acceptance("GW-85")
async def test_slots_of_a_gateway_that_died_are_free_three_seconds_after_its_last_sign_of_life(redis, redis_server):
    async with gateways(redis_server.url, 2) as (dying, living):
        (pod,) = endpoints(1)
        await dying.admit_all(charge(1, to=(pod,), inflight=3) for _ in range(3))
        await dying.die()
        assert verdicts([await living.admit(charge(1, to=(pod,), inflight=3))]) == [Limit.INFLIGHT]

        async def silent_for(seconds):
            whole_s, microseconds = await redis.time()
            await redis.zadd(keys.GATEWAYS, {dying.field: whole_s + microseconds / 1e6 - seconds})

        await silent_for(2)
        assert verdicts([await living.admit(charge(1, to=(pod,), inflight=3))]) == [Limit.INFLIGHT]
        await silent_for(4.1)
        assert verdicts([await living.admit(charge(1, to=(pod,), inflight=3))]) == ["granted"]
        assert set(await redis.hgetall(keys.slots(pod.key))) == {dying.field, living.field}
        await silent_for(601)
        await until(lambda: _absent(redis, dying.field))
        await living.admit(charge(1, to=(pod,), inflight=3))
        assert set(await redis.hgetall(keys.slots(pod.key))) == {living.field}


async def _absent(redis, field):
    return await redis.zscore(keys.GATEWAYS, field) is None


async def test_a_gateway_that_ends_in_order_frees_its_slots_at_once(two, redis):
    leaving, staying = two
    (pod,) = endpoints(1)
    await leaving.admit(charge(1, to=(pod,), inflight=1))
    leaving._running.cancel()
    await leaving.limiter.leave()
    assert verdicts([await staying.admit(charge(1, to=(pod,), inflight=1))]) == ["granted"]


async def test_a_slot_held_for_long_is_told_again_each_minute(gateway, redis):
    (pod,) = endpoints(1)
    granted = await gateway.admit(charge(0, to=(pod,), inflight=1))
    key = keys.slots(pod.key)

    async def lives_on(now_s):
        await redis.expire(key, 5)
        gateway.limiter.renew(granted, now_s)
        await settled(gateway)
        return await redis.ttl(key) > 5

    assert [await lives_on(now_s) for now_s in (10, 40, 69, 70, 80, 130)] == [False, False, False, True, False, True]


async def test_a_request_that_is_given_up_while_redis_is_asked_holds_nothing(gateway, redis, monkeypatch):
    (pod,) = endpoints(1)
    taken, take = [], Slots.take

    def take_and_remember(slots, key):
        taken.append(key)
        take(slots, key)

    monkeypatch.setattr(Slots, "take", take_and_remember)
    gateway.limiter.admit(charge(1, to=(pod,), inflight=5, rps=rps(9))).cancel()
    await until(lambda: taken == [pod.key] and gateway.limiter.slots.held() == {})
    await settled(gateway)
    assert await redis.hgetall(keys.slots(pod.key)) == {}
    assert await redis.get(keys.model_rps("m", 1, 1)) == "0"


HOSTILE = [
    "a",
    "a_RPM_CURRENT",
    "a_RPM_CURRENT:0",
    "a:0",
    "rrq:gateways",
    "{a}",
    "%61",
    "a b",
    "ä",
    "a\n",
    "\ud800",
    "*",
]


async def test_no_two_users_and_no_two_models_share_a_counter(gateway, redis):
    for name in HOSTILE:
        await gateway.admit(charge(1, user=user(name, rpm=1)))
    answers = [await gateway.admit(charge(1, user=user(name, rpm=1))) for name in HOSTILE]
    assert verdicts(answers) == [Limit.RPM] * len(HOSTILE)
    assert {answer.retry_after_s for answer in answers} == {59}
    assert len({keys.model_rps(name, 1, 0) for name in HOSTILE}) == len(HOSTILE)
    made = {make(name, 0) for name in HOSTILE for make in (keys.user_rpm, keys.user_tpm)}
    made |= {keys.model_rps(name, window_s, 0) for name in HOSTILE for window_s in (1, 6)}
    assert len(made) == 4 * len(HOSTILE)
    assert not made & {keys.GATEWAYS, keys.RUNNING}


def test_keys_of_plain_names_are_upstreams():
    assert keys.user_rpm("ann@example.com", 65) == "aibrix:ann@example.com_RPM_CURRENT:1"
    assert keys.user_tpm("ann", 0) == "aibrix:ann_TPM_CURRENT:0"
    assert keys.model_rps("org/model-7b", 1, 63) == "aibrix_model:org/model-7b_MODEL_RPS_CURRENT:63"


async def test_a_burst_shares_calls_instead_of_making_one_each(gateway, redis):
    before = (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"] if await _asked(redis) else 0
    await gateway.admit_all(charge(1, rps=rps(500)) for _ in range(100))
    calls = (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"] - before
    assert calls < 100 / 4, "those of the exchange, one each 20 ms, are among them"


async def _asked(redis):
    return "cmdstat_evalsha" in await redis.info("commandstats")


async def test_a_gateway_hears_what_the_others_have_running(two):
    one, other = two
    pod, idle = endpoints(2)
    for _ in range(3):
        one.loads.add(pod)
    other.loads.add(pod)
    await until(lambda: other.loads.count(pod) == 4 and one.loads.count(pod) == 4)
    assert (one.loads.count(idle), one.loads.own(), one.running.others) == (0, {pod.key: 3}, 1)
    for _ in range(3):
        one.loads.remove(pod)
    await until(lambda: other.loads.count(pod) == 1)


async def test_counts_of_a_gateway_that_died_are_forgotten(redis, redis_server):
    async with gateways(redis_server.url, 2) as (dying, living):
        (pod,) = endpoints(1)
        dying.loads.add(pod)
        await until(lambda: living.loads.count(pod) == 1)
        await dying.die()
        now_s, _ = await redis.time()
        await redis.zadd(keys.GATEWAYS, {dying.field: now_s - 4.1})
        await until(lambda: living.loads.count(pod) == 0)


async def test_counts_of_a_gateway_that_stood_still_count_again_when_it_goes_on(two, redis):
    still, living = two
    (pod,) = endpoints(1)
    still.loads.add(pod)
    await until(lambda: living.loads.count(pod) == 1)
    still._running.cancel()
    now_s, _ = await redis.time()
    await redis.zadd(keys.GATEWAYS, {still.field: now_s - 4.1})
    await until(lambda: living.loads.count(pod) == 0)
    await still.running.exchange()
    await until(lambda: living.loads.count(pod) == 1)

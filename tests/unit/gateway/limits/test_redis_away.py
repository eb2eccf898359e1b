"""Redis slow, dead, absent and empty: the chosen policy holds, nobody waits long, and counts are shared again after."""

import asyncio
import collections
import logging
import time

import pytest
from redis_server import RedisServer
from shared_limits import Gateway, client, gateways, settled, until, verdicts
from traffic_builders import charge, endpoints, rps, user

from aibrix_operator.gateway.limits import keys
from aibrix_operator.gateway.limits.limiter import Denied, Granted, Limit
from aibrix_operator.gateway.limits.users import Policy

ANSWERS_WITHIN_S = 0.1
SLOWEST_S = 4.0
"""What a request may take on a busy machine while a hung Redis is given ``ANSWERS_WITHIN_S``."""
STANDS_STILL_S = 1.5
"""Longer than ``WELL_WITHIN_S``, which Redis keeps to on a busy machine too."""
WELL_WITHIN_S = 0.5


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.ERROR, "aibrix_operator.gateway.limits")


def at_once(gateway, of):
    answer = gateway.limiter.admit(of)
    assert isinstance(answer, Granted | Denied), "nobody waits while Redis is known to be away"
    return answer


async def closed(gateway):
    """It has noticed."""
    await until(lambda: not gateway.store.is_up)


POLICIES = pytest.mark.parametrize(
    ("policy", "rates", "slots"),
    [
        pytest.param(Policy.OPEN, {"granted": 20}, {"granted": 3, Limit.INFLIGHT: 17}, id="open"),
        pytest.param(Policy.LOCAL, {"granted": 5, Limit.MODEL_RPS: 15}, {"granted": 3, Limit.INFLIGHT: 17}, id="local"),
        pytest.param(Policy.CLOSED, {Limit.STORE: 20}, {Limit.STORE: 20}, id="closed"),
    ],
)


@POLICIES
async def test_while_redis_is_dead_the_policy_decides_and_nobody_waits(own_redis_server, policy, rates, slots):
    async with gateways(own_redis_server.url, policy=policy) as (gateway,):
        await gateway.admit(charge(1, rps=rps(5)))
        own_redis_server.stop()
        await closed(gateway)
        found = [at_once(gateway, charge(2, rps=rps(5))) for _ in range(20)]
        assert collections.Counter(verdicts(found)) == rates
        answers = [at_once(gateway, charge(2, inflight=3)) for _ in range(20)]
        assert collections.Counter(verdicts(answers)) == slots
        assert {a.retry_after_s for a in answers if getattr(a, "limit", None) is Limit.STORE} <= {1}
        assert verdicts([await gateway.admit(charge(2))]) == ["granted"]
        standing = gateway.limiter.status()
        assert (standing.is_up, standing.outages) == (False, 1)
        assert standing.error


@pytest.mark.acceptance("GW-85")
async def test_a_redis_that_hangs_costs_the_first_requests_a_tenth_of_a_second_and_the_next_nothing(own_redis_server):
    async with gateways(own_redis_server.url, within_s=ANSWERS_WITHIN_S) as (gateway,):
        await until(lambda: gateway.store.is_up)
        own_redis_server.hang()
        before_s = time.monotonic()
        answers = await gateway.admit_all(charge(1, inflight=3) for _ in range(5))
        assert time.monotonic() - before_s < SLOWEST_S
        assert collections.Counter(verdicts(answers)) == {"granted": 3, Limit.INFLIGHT: 2}
        assert verdicts([at_once(gateway, charge(1, inflight=3))]) == [Limit.INFLIGHT]
        own_redis_server.go_on()
        await until(lambda: gateway.store.is_up)


async def test_a_process_that_stood_still_does_not_take_redis_for_dead(own_redis_server):
    async with gateways(own_redis_server.url, within_s=WELL_WITHIN_S) as (gateway,):
        await gateway.admit(charge(1, inflight=9))
        for _ in range(2):
            asking = gateway.limiter.admit(charge(1, inflight=9))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            time.sleep(STANDS_STILL_S)  # noqa: ASYNC251  # it is the loop that stands still
            assert verdicts([await asking]) == ["granted"]
        assert gateway.limiter.status().outages == 0


async def test_what_a_hung_redis_did_after_all_is_put_right_when_it_is_back(own_redis_server):
    url = own_redis_server.url
    async with gateways(url, within_s=ANSWERS_WITHIN_S) as (gateway,), client(url) as redis:
        (pod,) = endpoints(1)
        await until(lambda: gateway.store.is_up)
        first = await gateway.admit(charge(1, to=(pod,), inflight=9))
        own_redis_server.hang()
        answers = await gateway.admit_all(charge(1, to=(pod,), inflight=9) for _ in range(3))
        gateway.limiter.settle(first, None, 2)
        for answer in answers[:2]:
            gateway.limiter.settle(answer, None, 2)
        own_redis_server.go_on()

        async def is_right():
            return await redis.hgetall(keys.slots(pod.key)) == {gateway.field: "1"}

        await until(is_right)


async def test_a_slot_that_a_hung_redis_gave_to_a_request_that_was_refused_meanwhile_is_given_back(own_redis_server):
    url = own_redis_server.url
    async with gateways(url, policy=Policy.CLOSED, within_s=ANSWERS_WITHIN_S) as (gateway,), client(url) as redis:
        pod, other = endpoints(2)
        await gateway.admit(charge(1, to=(other,), inflight=9))  # from now on Redis knows the script
        own_redis_server.hang()
        assert verdicts([await gateway.admit(charge(1, to=(pod,), inflight=9))]) == [Limit.STORE]
        own_redis_server.go_on()
        await until(lambda: gateway.store.is_up)

        async def is_free():
            return await redis.hgetall(keys.slots(pod.key)) == {}

        await until(is_free)
        await settled(gateway)
        assert await is_free()


async def test_absent_at_the_start_the_policy_holds_and_later_counts_are_shared(tmp_path):
    path = tmp_path / "redis.sock"  # a port could be somebody else's by the time that the server starts
    server, url = RedisServer(tmp_path, ("--unixsocket", str(path))), f"unix://{path}"
    (pod,) = endpoints(1)
    async with gateways(url, 2, within_s=1) as (one, other):
        assert not one.store.is_up
        for gateway in (one, other):
            assert verdicts([await gateway.admit(charge(1, to=(pod,), inflight=1))]) == ["granted"]
        server.start()
        try:
            await until(lambda: one.store.is_up and other.store.is_up)
            async with client(url) as redis:

                async def both_are_told():
                    return set(await redis.hgetall(keys.slots(pod.key))) == {one.field, other.field}

                await until(both_are_told)
            assert verdicts([await one.admit(charge(1, to=(pod,), inflight=2))]) == [Limit.INFLIGHT]
        finally:
            server.stop()


async def test_restarted_empty_redis_is_told_what_every_gateway_holds(own_redis_server):
    url = own_redis_server.url
    async with gateways(url, 2) as (one, other), client(url) as redis:
        (pod,) = endpoints(1)
        held = await one.admit_all(charge(1, to=(pod,), inflight=3) for _ in range(2))
        await other.admit(charge(1, to=(pod,), inflight=3))
        one.loads.add(pod)
        own_redis_server.stop()
        await closed(one)
        await closed(other)
        own_redis_server.start()
        assert own_redis_server.url == url

        async def both_are_told():
            return await redis.hgetall(keys.slots(pod.key)) == {one.field: "2", other.field: "1"}

        await until(both_are_told)
        assert verdicts([await other.admit(charge(2, to=(pod,), inflight=3))]) == [Limit.INFLIGHT]
        one.limiter.settle(held[0], None, 3)
        await until(lambda: other.loads.count(pod) == 1)
        assert verdicts([await other.admit(charge(3, to=(pod,), inflight=3))]) == ["granted"]


async def test_a_redis_that_forgot_everything_and_kept_its_connections_is_told_again(own_redis_server):
    async with gateways(own_redis_server.url) as (gateway,), client(own_redis_server.url) as redis:
        (pod,) = endpoints(1)
        await gateway.admit(charge(1, to=(pod,), inflight=3))
        await redis.flushall()

        async def is_told():
            return await redis.hgetall(keys.slots(pod.key)) == {gateway.field: "1"}

        await until(is_told)


async def test_a_redis_that_forgot_everything_is_told_again_by_the_next_request(own_redis_server):
    async with gateways(own_redis_server.url) as (gateway,), client(own_redis_server.url) as redis:
        held, other = endpoints(2)
        await gateway.admit(charge(1, to=(held,), inflight=3))
        gateway._running.cancel()
        await redis.flushall()
        await gateway.admit(charge(1, to=(other,), inflight=3))
        await settled(gateway)
        assert await redis.hgetall(keys.slots(held.key)) == {gateway.field: "1"}


async def test_a_redis_that_forgot_what_runs_is_told_again_though_nothing_changed(own_redis_server):
    async with gateways(own_redis_server.url) as (gateway,), client(own_redis_server.url) as redis:
        (pod,) = endpoints(1)
        gateway.loads.add(pod)

        async def is_told():
            return await redis.hget(keys.RUNNING, gateway.field) == f'{{"{pod.key}":1}}'

        await until(is_told)
        await redis.delete(keys.RUNNING)
        await until(is_told)


async def test_windows_are_cut_by_the_clock_of_redis(own_redis_server):
    async with gateways(own_redis_server.url) as (gateway,), client(own_redis_server.url) as redis:
        gateway.running._clock = lambda: time.time() - 120
        await until(lambda: gateway.limiter.clock_ahead_s)
        assert 110 < gateway.limiter.clock_ahead_s < 130  # a call may take a while on a busy machine
        await gateway.admit(charge(30, user=user("ann"), tokens=5))
        minutes = [minute for minute in range(4) if await redis.get(keys.user_tpm("ann", minute))]
        assert minutes == [2]


async def test_scripts_that_redis_has_forgotten_are_sent_again(own_redis_server):
    async with gateways(own_redis_server.url) as (gateway,), client(own_redis_server.url) as redis:
        await gateway.admit(charge(1, inflight=3))
        await redis.script_flush()
        assert verdicts([await gateway.admit(charge(1, inflight=3))]) == ["granted"]
        assert gateway.limiter.status().outages == 0


async def test_counts_of_the_others_are_forgotten_while_redis_is_away_for_long(own_redis_server):
    now_s = time.time()
    gateway = Gateway(own_redis_server.url)
    gateway.running._clock = lambda: now_s
    await gateway.start()
    (pod,) = endpoints(1)
    async with client(own_redis_server.url) as redis:
        server_s, _ = await redis.time()
        await redis.zadd(keys.GATEWAYS, {"other:1": server_s + 60})
        await redis.hset(keys.RUNNING, "other:1", f'{{"{pod.key}": 7}}')
    await until(lambda: gateway.loads.count(pod) == 7)
    own_redis_server.stop()
    await closed(gateway)
    for _ in range(3):
        await gateway.running.exchange()
    assert gateway.loads.count(pod) == 7
    now_s += 4
    await until(lambda: gateway.loads.count(pod) == 0)
    await gateway.die()


async def test_tokens_of_requests_that_were_granted_without_redis_are_settled_without_it(own_redis_server):
    async with gateways(own_redis_server.url) as (gateway,):
        ann = user(tpm=100)
        own_redis_server.stop()
        await closed(gateway)
        first = await gateway.admit(charge(1, user=ann, tokens=100, inflight=1))
        assert verdicts([await gateway.admit(charge(1, user=ann))]) == [Limit.TPM]
        gateway.limiter.settle(first, 30, 2)
        gateway.limiter.settle(first, 30, 2)
        assert (await gateway.admit(charge(2, user=ann, inflight=1))).tpm == 30


async def test_a_fault_of_ours_leaves_no_request_without_an_answer(own_redis_server, monkeypatch):
    async with gateways(own_redis_server.url) as (gateway,):

        def broken(*_):
            raise ZeroDivisionError

        monkeypatch.setattr("aibrix_operator.gateway.limits.batch.Batch.document", broken)
        answers = await gateway.admit_all(charge(1, inflight=1) for _ in range(2))
        assert collections.Counter(verdicts(answers)) == {"granted": 1, Limit.INFLIGHT: 1}

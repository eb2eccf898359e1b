"""Three gateways and their Redis: one wake for a burst, shared limits, and what is left of a replica that was killed.

A stream that is longer than a lease runs through one of them nearly all the time, and holds its slot.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial

import pytest
import redis

from aibrix_operator.gateway.backing import FIRST_ANSWER_S
from aibrix_operator.gateway.envoy.settings import EnvoySettings
from aibrix_operator.gateway.leases import RENEWALS_MISSED
from aibrix_operator.gateway.limits import keys
from aibrix_operator.gateway.limits.scripts import LIVE_S
from bench.soak.clients import ask, session
from e2e.api import eventually
from e2e.gateway import Gateway, Reply
from e2e.gateway_stage import (
    AWAKE,
    CAPPED,
    CLOSED,
    INFLIGHT,
    LOCAL,
    OPEN,
    POLICIES,
    RATED,
    RPS,
    SLEEPER,
    USER,
    USER_RPM,
    Stage,
)
from e2e.pool import kill

LONG_TOKENS, TOKENS_PER_S = 400, 10
HOLD_TOKENS = 20
"""Of a request that is to be there still when others of its burst come."""
LEASE_S = EnvoySettings().renew_interval_s * RENEWALS_MISSED
AT_MOST_OVER = len(POLICIES)
FREE_WITHIN_S = LIVE_S + 5.0
"""The script forgets a silent gateway after ``LIVE_S``; the rest is for the questions that find it out."""
AWAY = "the gateway's limits cannot be checked now"


@pytest.fixture(scope="module", autouse=True)
def long_stream(stage: Stage) -> Future[Reply]:
    """Through the gateway that no story kills before it has ended."""
    assert LONG_TOKENS / TOKENS_PER_S > 2 * LEASE_S
    answer = stage.gateways[OPEN].start_chat(CAPPED, stream=True, max_tokens=LONG_TOKENS, ignore_eos=True)
    eventually("it runs", lambda: _in_flight(stage.gateways[OPEN]) == 1)
    return answer


def _in_flight(gateway: Gateway) -> float:
    return gateway.metric("gateway_in_flight_requests", gateway_pod=gateway.pod_name)


def burst(
    urls: Sequence[str], model: str, requests: int, *, over_s: float = 0.0, tokens: int = 1, user: str = ""
) -> tuple[Counter[int], int]:
    """Status → how many, and how many seconds of the clock the burst reached into."""

    async def one(shared, number: int) -> int:
        await asyncio.sleep(over_s * number / requests)
        url = urls[number % len(urls)]
        return (await ask(shared, url, model, tokens=tokens, user=user, within_s=60.0))[0]

    async def all_of_them() -> list[int]:
        async with session() as shared:
            return await asyncio.gather(*(one(shared, number) for number in range(requests)))

    began_s = time.time()
    statuses = Counter(asyncio.run(all_of_them()))
    return statuses, int(time.time()) - int(began_s) + 1


def admitted(stage: Stage, *numbers: int) -> int:
    """How many of a dozen requests that come together find a slot; they have left them when this returns."""
    gateways = [stage.gateways[number] for number in numbers]
    statuses, _ = burst([gateway.address.url for gateway in gateways], CAPPED, 12, tokens=HOLD_TOKENS)
    assert statuses.keys() <= {200, 429}, statuses
    long = OPEN in numbers
    eventually("their ends are told", lambda: sum(map(_in_flight, gateways)) == long)
    return statuses[200]


@pytest.fixture
def urls(stage: Stage) -> list[str]:
    return [gateway.address.url for gateway in stage.gateways]


def test_sixty_requests_within_a_fifth_of_a_second_make_one_wake(stage: Stage, urls: list[str]):
    operation = f"by-hand/{datetime.now(UTC).isoformat()}"
    sleep = partial(stage.pool.pod.post, "sleep", model_name=SLEEPER, level=1, operation_id=operation)
    eventually("it takes the call", lambda: sleep().status == 200)
    stage.pool.wait_asleep(SLEEPER)
    for gateway in stage.gateways:
        eventually("every gateway knows", lambda at=gateway: at.models()[SLEEPER]["status"] == "sleeping")
    written, waking = _wakes_written(stage), stage.pool.told(SLEEPER, "Waking")

    statuses, _ = burst(urls, SLEEPER, 60, over_s=0.2)

    assert statuses.keys() <= {200, 503}, statuses
    assert statuses[503] > 0, "the first of them find it asleep"
    for gateway in stage.gateways:
        eventually("a retry is answered", lambda at=gateway: at.chat(SLEEPER).status == 200, 10.0)
    assert _wakes_written(stage) == written + 1
    stage.pool.wait_told(SLEEPER, "Waking", waking + 1)


def _wakes_written(stage: Stage) -> float:
    return sum(gateway.metric("aibrix_gateway_wake_requests_total", result="written") for gateway in stage.gateways)


@pytest.mark.acceptance("GW-84")
def test_gw84_an_in_flight_cap_holds_over_all_replicas(stage: Stage):
    free = INFLIGHT - 1  # the long stream has one
    assert free <= admitted(stage, LOCAL, OPEN, CLOSED) <= free + AT_MOST_OVER


def test_a_models_requests_per_second_hold_over_all_replicas(urls: list[str]):
    statuses, seconds = burst(urls, RATED, 120)
    print(f"{RPS} a second, {statuses} in {seconds} seconds of the clock")
    assert statuses.keys() == {200, 429}
    assert RPS <= statuses[200] <= seconds * RPS + AT_MOST_OVER


def test_a_users_requests_per_minute_hold_over_all_replicas(stage: Stage, urls: list[str]):
    record = {"name": USER, "rpm": USER_RPM, "tpm": 1_000_000}
    with redis.Redis.from_url(stage.redis.url) as store:
        store.set(keys.user_record(USER), json.dumps(record))
    began_s = time.time()
    statuses, _ = burst(urls, AWAKE[0], 90, user=USER)
    minutes = int(time.time() // 60 - began_s // 60) + 1
    assert statuses.keys() <= {200, 429}
    assert USER_RPM <= statuses[200] <= minutes * USER_RPM + AT_MOST_OVER


@pytest.mark.acceptance("GW-85")
@pytest.mark.parametrize("what", ["process", "envoy"])
def test_gw85_slots_of_a_replica_that_was_killed_are_free_within_seconds_and_a_long_stream_keeps_its_own(
    stage: Stage, long_stream: Future[Reply], what: str
):
    killed = stage.gateways[LOCAL]
    held = [killed.start_chat(CAPPED, max_tokens=LONG_TOKENS, ignore_eos=True) for _ in range(2)]
    eventually("they run", lambda: _in_flight(killed) == 2)
    assert admitted(stage, CLOSED) == 1
    pid = {"process": stage.process, "envoy": stage.envoy}[what](LOCAL)

    kill(pid)

    killed_s, free = time.monotonic(), 0
    while free != INFLIGHT - 1:
        free = admitted(stage, CLOSED)
        assert free in (1, INFLIGHT - 1), f"{free} slots are free: the long stream's is not, and all of a replica's are"
        assert time.monotonic() - killed_s < FREE_WITHIN_S + HOLD_TOKENS / TOKENS_PER_S
    assert all(answer.exception(timeout=10) is not None for answer in held), "their clients were cut off"
    assert not long_stream.done()
    stage.wait_ready(LOCAL)


def test_without_redis_each_policy_does_what_it_says_and_an_empty_one_is_told_all_again(stage: Stage, urls: list[str]):
    with stage.without_redis():
        for gateway, policy in zip(stage.gateways, POLICIES, strict=True):
            assert gateway.look("/readyz").status == 200
            assert gateway.chat(AWAKE[0]).status == 200
            told = gateway.look("/status").body["limits"]["redis"]
            assert (told["up"], told["while_away"]) == (False, policy)
        statuses, seconds = burst(urls[LOCAL : LOCAL + 1], RATED, 60)
        assert statuses.keys() == {200, 429}
        assert RPS <= statuses[200] <= seconds * RPS
        assert burst(urls[OPEN : OPEN + 1], RATED, 60)[0] == {200: 60}
        assert admitted(stage, OPEN) == INFLIGHT - 1, "slots are counted all the same"
        _is_closed(stage.gateways[CLOSED])

    stage.wait_redis(True)
    assert stage.gateways[CLOSED].chat(RATED).status == 200
    assert admitted(stage, LOCAL, OPEN, CLOSED) == INFLIGHT - 1, "the long stream has its slot in the new Redis"


def _is_closed(gateway: Gateway) -> None:
    for model in (RATED, CAPPED):
        reply = gateway.chat(model)
        assert reply.told == (503, "1", AWAY)
        assert reply.error[1:] == ("overloaded_error", "service_unavailable", None)


def test_a_stream_that_is_longer_than_a_lease_ends_whole_and_all_counts_are_zero_then(
    stage: Stage, long_stream: Future[Reply]
):
    reply = long_stream.result(timeout=2 * LONG_TOKENS / TOKENS_PER_S)
    assert reply.status == 200
    assert reply.text.rstrip().endswith("[DONE]")
    assert reply.text.count('"content"') >= LONG_TOKENS
    for gateway in stage.gateways:
        assert gateway.metric("aibrix_gateway_leases_expired_total") == 0
        eventually("nothing is in flight", lambda at=gateway: _in_flight(at) == 0)
    eventually("no slot is held", partial(_is_empty, stage))


def _is_empty(stage: Stage) -> bool:
    with redis.Redis.from_url(stage.redis.url) as store:
        return not [key for key in store.keys("aibrix:rrq:*") if key.decode() not in (keys.GATEWAYS, keys.RUNNING)]


@pytest.mark.acceptance("GW-119")
def test_gw119_without_redis_at_its_start_a_gateway_serves_what_its_policy_allows(stage: Stage):
    stage.redis.stop()
    pids = [stage.process(number) for number in range(len(POLICIES))]
    for pid in pids:
        kill(pid)
    restarted = partial(_are_others, stage, pids)
    eventually("all were started again", restarted)

    stage.wait_ready(LOCAL, OPEN, within_s=FIRST_ANSWER_S + 20.0)
    for gateway in stage.gateways:
        eventually("an awake model is served", lambda at=gateway: at.chat(AWAKE[0]).status == 200)
    assert stage.gateways[OPEN].chat(RATED).status == 200
    assert stage.gateways[LOCAL].chat(RATED).status == 200
    _is_closed(stage.gateways[CLOSED])
    probe = stage.gateways[CLOSED].look("/readyz")
    assert (probe.status, probe.body["problems"]) == (503, ["Redis has not answered yet"])
    stage.redis.start()
    stage.wait_ready(CLOSED)
    assert stage.gateways[CLOSED].chat(RATED).status == 200


def _are_others(stage: Stage, pids: Sequence[int]) -> bool:
    found = []
    for number in range(len(POLICIES)):
        try:
            found.append(stage.process(number))
        except ValueError:  # it is yet to be started again
            return False
    return not set(found) & set(pids)

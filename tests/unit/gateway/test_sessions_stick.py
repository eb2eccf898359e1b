"""Sessions come back to the engine that served them: by cookie, by key, over replicas, restarts and lost Pods."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import logging
from collections.abc import Awaitable

import pytest
from gateway_asks import chat, endpoint, question, view
from gateway_exchanges import Gateway, told
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from aibrix_operator.gateway import sessions as pins
from aibrix_operator.gateway.sessions import RedisPins, Sessions
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.strategies.session_affinity import fnv_1a, rendezvous, session_id
from aibrix_operator.gateway.view import Model

KEY = "secret-of-a-caller"


def make_model(count, without=()):
    return Model("m", tuple(endpoint(number) for number in range(count) if number not in without))


def gateway(seen=None, sessions=None):
    return Gateway(
        view(seen or make_model(5)),
        default="session-affinity",
        book=StrategyBook(pins=Sessions() if sessions is None else sessions),
    )


def ask(one, key=None, cookie=None):
    given = {"x_aibrix_session_key": key, "x_session_id": cookie}
    return told(one.ask(**{name: value for name, value in given.items() if value is not None}))


async def come(one, key):
    """The same for a gateway that may have to read Redis first."""
    answer = one.exchange.answer(question(chat(), x_aibrix_session_key=key))
    return told(await answer if isinstance(answer, Awaitable) else answer)


def address_in(answer):
    assert base64.b64decode(answer["x-session-id"]).decode() == answer["target-pod-ip"]
    return answer["target-pod-ip"]


@pytest.fixture
async def redis(redis_server):
    client = Redis.from_url(redis_server.url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.mark.acceptance("GW-88")
def test_a_cookie_wins_over_a_key():
    one = gateway()
    pinned = address_in(ask(one, KEY))
    other = next(e.address for e in make_model(5).endpoints if e.address != pinned)
    for _ in range(5):
        assert address_in(ask(one, KEY, session_id(other))) == other
    assert address_in(ask(one, KEY)) == pinned


@pytest.mark.acceptance("GW-88")
@pytest.mark.parametrize(
    "cookie", [session_id("10.9.9.9:1"), "%%%", "a", "", "é", "////", base64.b64encode(b"\xff\xfe").decode()]
)
def test_a_cookie_of_a_pod_that_is_gone_or_of_nobody_is_ignored(cookie):
    one = gateway()
    pinned = address_in(ask(one, KEY))
    assert address_in(ask(one, KEY, cookie)) == pinned
    assert address_in(ask(one, None, cookie)) in {e.address for e in make_model(5).endpoints}


def test_without_cookie_and_key_any_pod_serves_and_is_kept():
    one = gateway()
    served = {address_in(ask(one)) for _ in range(60)}
    assert len(served) == 5
    cookie = ask(one)["x-session-id"]
    assert {ask(one, None, cookie)["x-session-id"] for _ in range(10)} == {cookie}


@pytest.mark.acceptance("GW-92")
def test_keys_have_1_to_256_bytes():
    one = gateway()
    for key in ("k" * 256, "é" * 128, "k"):
        sent = key.encode().decode("latin-1")
        assert len({address_in(ask(one, sent)) for _ in range(20)}) == 1
    for key in ("k" * 257, "é" * 129, ""):
        sent = key.encode().decode("latin-1")
        assert len({address_in(ask(one, sent)) for _ in range(60)}) > 1


@pytest.mark.acceptance("GW-52")
def test_a_lone_pods_sessions_are_kept_when_a_second_one_comes():
    one = gateway(make_model(1))
    first = address_in(ask(one, KEY))
    one.change(make_model(9))
    assert {address_in(ask(one, KEY)) for _ in range(5)} == {first}


@pytest.mark.acceptance("GW-91")
@given(st.sets(st.text(st.characters(codec="ascii"), min_size=1), min_size=1, max_size=30), st.integers(0, 4))
def test_when_one_of_five_pods_goes_only_its_keys_move(keys, gone):
    every, left = make_model(5).endpoints, make_model(5, without={gone}).endpoints
    for key in keys:
        before, after = rendezvous(key, every), rendezvous(key, left)
        assert before is every[gone] or before.address == after.address
        assert rendezvous(key, every[::-1]) is before


@pytest.mark.acceptance("GW-91")
def test_keys_are_spread_evenly_by_the_known_hash():
    assert fnv_1a(b"") == 0xCBF29CE484222325
    assert fnv_1a(b"foobar") == 0x85944171F73967E8
    assert fnv_1a(b"bar", fnv_1a(b"foo")) == fnv_1a(b"foobar")
    every = make_model(5).endpoints
    counts = [0] * 5
    for number in range(2000):
        counts[every.index(rendezvous(f"session-{number}", every))] += 1
    assert max(counts) < 2000 / 5 * 1.25
    assert min(counts) > 2000 / 5 * 0.75


@pytest.mark.acceptance("GW-91")
async def test_without_redis_two_gateways_agree(own_redis_server):
    own_redis_server.stop()
    client = Redis.from_url(own_redis_server.url)
    gateways = [gateway(sessions=Sessions(RedisPins(client))) for _ in range(2)]
    for number in range(10):
        answers = [await come(one, f"k{number}") for one in gateways]
        assert len({address_in(answer) for answer in answers}) == 1
    await client.aclose()


@pytest.mark.acceptance("GW-89")
async def test_many_first_requests_on_two_gateways_go_to_one_pod(redis):
    shared = [Sessions(RedisPins(redis)) for _ in range(2)]
    gateways = [gateway(sessions=one) for one in shared]
    answers = await asyncio.gather(*[come(gateways[i % 2], KEY) for i in range(100)])
    for one in shared:
        await one.settled()
    (served,) = {address_in(answer) for answer in answers}
    stored = await redis.get(f"aibrix:gateway:session_affinity:m\0{KEY}")
    assert stored.decode() == served
    assert 3590 < await redis.ttl(f"aibrix:gateway:session_affinity:m\0{KEY}") <= 3600


@pytest.mark.acceptance("GW-89")
async def test_a_gateway_that_placed_a_session_otherwise_takes_over_the_winner(redis):
    """One gateway sees one Pod less, and claims another."""
    first, second = Sessions(RedisPins(redis)), Sessions(RedisPins(redis))
    home = rendezvous(KEY, make_model(5).endpoints)
    first.pin("m", KEY, home.address)
    await first.settled()
    second.pin("m", KEY, "10.9.9.9:8000")
    await second.settled()
    assert second.address("m", KEY) == home.address


async def test_a_gateway_that_knows_nothing_reads_redis_before_it_decides(redis):
    first, second = Sessions(RedisPins(redis)), Sessions(RedisPins(redis))
    away = next(e for e in make_model(5).endpoints if e is not rendezvous(KEY, make_model(5).endpoints))
    first.pin("m", KEY, away.address)
    await first.settled()
    one = gateway(sessions=second)
    assert address_in(await come(one, KEY)) == away.address
    assert address_in(ask(one, KEY)) == away.address


@pytest.mark.acceptance("GW-90")
async def test_both_gateways_move_the_sessions_of_a_lost_pod_alike(redis):
    shared = [Sessions(RedisPins(redis)) for _ in range(2)]
    gateways = [gateway(sessions=one) for one in shared]
    first = address_in(await come(gateways[0], KEY))
    await come(gateways[1], KEY)
    gone = next(n for n in range(5) if make_model(5).endpoints[n].address == first)
    for one in gateways:
        one.change(make_model(5, without={gone}))
    served = {address_in(ask(one, KEY)) for one in gateways for _ in range(3)}
    for one in shared:
        await one.settled()
    served |= {address_in(ask(one, KEY)) for one in gateways}
    assert len(served) == 1
    assert (await redis.get(f"aibrix:gateway:session_affinity:m\0{KEY}")).decode() in served - {first}


def test_a_pod_that_is_only_filtered_out_keeps_its_sessions():
    zones = Model("m", tuple(dataclasses.replace(endpoint(n), labels={"zone": "ab"[n % 2]}) for n in range(4)))
    one = gateway(zones)
    home = address_in(ask(one, KEY))
    own = next(e for e in zones.endpoints if e.address == home).labels["zone"]
    other = told(one.ask(x_aibrix_session_key=KEY, external_filter=f"zone!={own}"))
    assert other["target-pod-ip"] != home
    assert address_in(ask(one, KEY)) == home


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


class Store:
    """Pins in a dictionary, of which calls can fail."""

    def __init__(self):
        self.held, self.reads, self.pinned, self.error = {}, [], 0, None

    async def read(self, sessions):
        self.reads.append(len(sessions))
        if self.error:
            raise self.error
        return [self.held.get(session) for session in sessions]

    async def pin(self, session, address, old):
        self.pinned += 1
        if self.error:
            raise self.error
        if self.held.get(session, old) in (old, address):
            self.held[session] = address
        return self.held[session]


@pytest.mark.acceptance("GW-93")
async def test_an_idle_session_is_forgotten_after_an_hour(redis):
    clock = Clock()
    kept = Sessions(RedisPins(redis), clock=clock)
    kept.pin("m", KEY, "a:1")
    await kept.settled()
    clock.now_s += 3599
    assert kept.address("m", KEY) == "a:1"
    await kept.sweep()
    assert len(kept) == 1
    clock.now_s += 1
    assert kept.address("m", KEY) is None
    await kept.sweep()
    assert len(kept) == 0
    assert await redis.pttl(f"aibrix:gateway:session_affinity:m\0{KEY}") <= 3_600_000


@pytest.mark.acceptance("GW-93")
def test_the_map_holds_at_most_100_000_sessions():
    kept = Sessions(clock=Clock())
    for number in range(100_001):
        kept.pin("m", str(number), "a:1")
    assert len(kept) == pins.MOST_KEYS == 100_000
    assert kept.address("m", "0") is None
    assert kept.address("m", "100000") == "a:1"


async def test_a_busy_session_is_refreshed_once_a_minute():
    clock, store = Clock(), Store()
    kept = Sessions(store, clock=clock)
    for _ in range(120):
        kept.pin("m", KEY, "a:1")
        clock.now_s += 1
        await kept.settled()
    assert store.pinned == 2


async def test_the_sweep_drops_what_redis_lost_and_claims_what_it_never_got():
    clock, store = Clock(), Store()
    kept = Sessions(store, clock=clock)
    for number in range(401):
        kept.pin("m", str(number), "a:1")
    await kept.settled()
    del store.held["m", "7"]
    store.held["m", "8"] = "b:1"
    store.error = ConnectionError("gone")
    kept.pin("m", "new", "c:1")
    await kept.settled()
    await kept.sweep()
    assert len(kept) == 402
    store.error, store.reads = None, []
    await kept.sweep()
    await kept.settled()
    assert store.reads == [200, 200, 2]
    assert (kept.address("m", "7"), kept.address("m", "8")) == (None, "b:1")
    assert store.held["m", "new"] == "c:1"


async def test_a_redis_that_does_not_answer_is_asked_again_a_second_later():
    clock, store = Clock(), Store()
    kept = Sessions(store, clock=clock)
    store.error = TimeoutError()
    assert kept.is_worth_a_look("m", KEY)
    await kept.look("m", KEY)
    assert not kept.is_worth_a_look("m", KEY)
    clock.now_s += 1
    assert kept.is_worth_a_look("m", KEY)
    assert not Sessions(clock=clock).is_worth_a_look("m", KEY)


async def test_a_hanging_redis_costs_a_new_session_a_tenth_of_a_second(own_redis_server):
    client = Redis.from_url(own_redis_server.url)
    kept = Sessions(RedisPins(client))
    await kept.look("m", "warm-up")
    own_redis_server.hang()
    try:
        began_s = asyncio.get_running_loop().time()
        await kept.look("m", KEY)
        assert asyncio.get_running_loop().time() - began_s < 1
    finally:
        own_redis_server.go_on()
        await client.aclose()


@pytest.mark.acceptance("GW-92")
async def test_a_key_is_in_no_log_and_no_answer(own_redis_server, caplog):
    caplog.set_level(logging.DEBUG)
    client = Redis.from_url(own_redis_server.url)
    kept = Sessions(RedisPins(client))
    one = gateway(sessions=kept)
    answers = [await come(one, KEY)]
    await kept.settled()
    own_redis_server.stop()
    answers += [await come(one, KEY + "2") for _ in range(3)]
    await kept.settled()
    await kept.sweep()
    await client.aclose()
    assert "session pins are not shared" in caplog.text
    assert caplog.text.count("session pins are not shared") == 1
    assert KEY not in caplog.text
    assert KEY not in str(answers)


def test_as_one_scorer_of_several_the_sessions_pod_counts_1():
    one = gateway()
    home = address_in(ask(one, KEY))
    text = "session-affinity:3,least-request"
    again = told(one.ask(x_aibrix_session_key=KEY, routing_strategy=text))
    assert again["target-pod-ip"] == home
    assert again["routing-strategy"] == text

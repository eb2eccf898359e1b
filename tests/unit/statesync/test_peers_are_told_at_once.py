"""The fast path: what changed is told within milliseconds, and every loss is noticed."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_states import Changing
from redis.exceptions import ConnectionError as RedisConnectionError
from sync_replicas import PERIOD_S, TELLING, Backend, few_examples, play, until, world

from aibrix_operator.sim import loop as virtual
from aibrix_operator.statesync import news
from aibrix_operator.statesync.news import Heard, Message
from aibrix_operator.statesync.telling import MOST_BYTES


def test_a_change_and_a_deletion_come_to_peers_without_any_cycle(backend):
    async def story(world):
        a, b = await world.telling(), await world.telling()
        a.times.use("x")
        await until(lambda: b.times.last_used_ns("x") is not None)
        world.clock.s += 1
        b.times.delete("x")
        await until(lambda: a.times.last_used_ns("x") is None)
        assert a.times.dirty_count == 1  # still to be pushed: what was told is not in Redis yet
        assert await world.entities() == {}

    play(backend, story)


def test_write_through_is_told_too(backend):
    async def story(world):
        a, b = await world.telling(), await world.telling()
        await a.sync.put("times", "x", b"%d" % world.clock.now_ns())
        await until(lambda: b.times.last_used_ns("x") is not None)
        await a.sync.delete("times", "x")
        await until(lambda: b.times.last_used_ns("x") is None)

    play(backend, story)


def test_changes_of_one_moment_travel_together(backend):
    async def story(world):
        a, b = await world.telling(), await world.telling()
        for n in range(200):
            a.times.use(str(n))
        await until(lambda: len(b.times.live_ids()) == 200)
        assert len(a.store.ops("publish")) == 1

    play(backend, story)


def test_idle_cycles_read_nothing_while_peers_are_heard_and_everything_now_and_then(backend):
    async def story(world):
        a, b = await world.telling(), await world.telling()
        a.times.use("x")
        for _ in range(15):
            await world.round()
            await world.all_heard()
            await world.advance(PERIOD_S)
        reasons = {
            r: b.count("pulls_total", namespace="times", reason=r) for r in ("listening", "start", "repair", "gap")
        }
        assert reasons["start"] == 1
        assert reasons["repair"] == 2
        assert reasons["gap"] == reasons["listening"] == 0
        assert len(b.store.ops("entities")) == 3

    play(backend, story)


def test_a_lost_message_makes_the_next_cycle_after_the_push_pull_everything(backend):
    async def story(world):
        a, b = await world.telling(), await world.telling()
        await world.round()
        await world.all_heard()
        b.store.hears = lambda payload: news.decode(payload).beat > 0
        a.times.use("x")
        await until(lambda: b.store.heard > 2)
        await b.cycle()
        assert b.times.last_used_ns("x") is None
        await a.cycle()
        await world.all_heard()
        await b.cycle()
        assert b.times.last_used_ns("x") is not None
        assert b.count("pulls_total", namespace="times", reason="gap") == 1

    play(backend, story)


def test_who_does_not_hear_its_own_beat_begins_to_listen_anew(backend):
    async def story(world):
        a, b = await world.telling(), await world.telling()
        await world.round()
        await world.all_heard()
        b.store.hears = lambda payload: False
        a.times.use("x")
        await world.round()
        await world.all_heard()
        b.store.hears = lambda payload: True
        await world.advance(PERIOD_S)
        await b.cycle()
        assert b.times.last_used_ns("x") is not None
        assert b.count("pulls_total", namespace="times", reason="deaf") == 1
        await until(lambda: b.count("listening", namespace="times") == 1)

    play(backend, story)


def test_a_lost_connection_makes_each_cycle_pull_until_it_is_back(own_redis_server):
    async def story(world):
        a, b = await world.telling(), await world.telling()
        await world.round()
        own_redis_server.stop()
        await until(lambda: b.count("listening", namespace="times") == 0)
        a.times.use("x")
        assert not await a.cycle()
        assert not await b.cycle()
        own_redis_server.start()
        assert await a.cycle()
        assert await b.cycle()
        assert b.times.last_used_ns("x") is not None
        await until(lambda: b.count("listening", namespace="times") == 1)

    play(Backend(own_redis_server.url), story)


def test_a_value_too_big_to_tell_comes_with_the_next_cycles(backend):
    async def story(world):
        mine, theirs = Changing(), Changing()
        a, b = await world.telling(mine), await world.telling(theirs)
        await world.round()
        await world.all_heard()
        mine.put("big", data=b"v" * (MOST_BYTES + 1))
        mine.put("small")
        await until(lambda: "small" in theirs.held)
        assert "big" not in theirs.held
        await a.cycle()
        await world.all_heard()
        await b.cycle()
        assert theirs.held == mine.held

    play(backend, story)


def test_many_big_values_travel_in_several_messages(backend):
    async def story(world):
        mine, theirs = Changing(), Changing()
        a, _ = await world.telling(mine), await world.telling(theirs)
        mine.put(*(f"e{n}" for n in range(5)), data=b"v" * (MOST_BYTES // 2))
        await until(lambda: theirs.held == mine.held)
        assert len(a.store.ops("publish")) == 3

    play(backend, story)


def test_while_redis_is_away_it_is_not_asked_again_for_every_change():
    async def story():
        async with world(Backend()) as made:
            made.clock.now_s = asyncio.get_running_loop().time
            state = Changing()
            replica = await made.telling(state)

            async def away(op, namespace, what):
                raise RedisConnectionError("gone")

            replica.store.before = away
            for n in range(1000):
                state.put(f"e{n}")
                await asyncio.sleep(0.01)
            assert 9 <= len(replica.store.ops("publish")) <= 11

    virtual.run(story())


def test_redis_away_loses_messages_and_no_change(backend):
    async def story(world):
        a, b = await world.telling(), await world.telling()
        await world.round()
        await world.all_heard()

        async def away(op, namespace, what):
            raise RedisConnectionError("gone")

        a.store.before = away
        a.times.use("x")
        await until(lambda: a.count("errors_total", namespace="times", phase="publish") >= 1)
        a.store.before = b.store.before
        await a.cycle()
        await world.all_heard()
        await b.cycle()
        assert b.times.last_used_ns("x") is not None

    play(backend, story)


def test_a_component_that_raises_does_not_end_the_telling(backend):
    async def story(world):
        mine, theirs = Changing(), Changing()
        await world.telling(mine)
        await world.telling(theirs)
        encode, failed = mine.encode, []

        def raises_once(entities):
            if not failed:
                failed.append(1)
                raise RuntimeError("broken")
            return encode(entities)

        mine.encode = raises_once
        mine.put("x")
        await until(lambda: bool(failed))
        mine.put("y")
        await until(lambda: "y" in theirs.held)

    play(backend, story)


def test_without_announcing_nothing_is_published_and_nobody_listens(backend):
    async def story(world):
        replica = world.replica(options=dataclasses.replace(TELLING, announce=False))
        replica.sync.start()
        replica.times.use("x")
        await replica.cycle()
        await asyncio.sleep(0)
        assert replica.store.ops("publish") == []
        assert replica.count("listening", namespace="times") == 0

    play(backend, story)


@few_examples
@given(payload=st.binary(max_size=80))
def test_noise_on_the_channel_is_counted_and_ignored(backend, payload):
    async def story(world):
        a = await world.telling()
        await world.redis.publish("aibrix:{times}:news", payload)
        await until(lambda: a.count("errors_total", namespace="times", phase="hear") == 1)
        a.times.use("x")
        assert await a.cycle()

    play(backend, story)


@given(
    st.builds(
        Message,
        sender=st.text(max_size=8).filter(lambda s: s.isprintable()),
        number=st.integers(0, 2**53),
        entities=st.dictionaries(st.text(max_size=10), st.binary(max_size=30), max_size=5),
        beat=st.integers(0, 2**53),
        refreshed=st.frozensets(st.integers(0, 63)),
    )
)
def test_a_message_comes_out_as_it_went_in(message):
    assert news.decode(news.encode(message)) == message


@given(st.data())
def test_a_damaged_message_is_refused_or_still_a_message(data):
    whole = bytearray(news.encode(Message("a", 3, {"x": b"12", "yy": b""}, beat=1, refreshed=frozenset({2}))))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(whole)))
    try:
        assert isinstance(news.decode(bytes(whole[:cut])), Message)
    except news.BadMessage:
        return


@pytest.mark.parametrize(
    ("heard", "pulls"),
    [
        pytest.param([(1, 0), (2, 0), (2, 1)], [False, False, False], id="nothing missed"),
        pytest.param([(1, 0), (3, 0), (3, 1), (3, 2)], [False, False, True, False], id="one missed, told once"),
        pytest.param([(7, 1), (8, 0), (8, 2)], [True, False, False], id="everything before the first beat missed"),
        pytest.param([(1, 0), (3, 0), (1, 1), (3, 2)], [False, False, False, True], id="missed after the push began"),
        pytest.param([(2, 0), (4, 0), (2, 1), (4, 2)], [False, False, True, True], id="two gaps, two pushes"),
        pytest.param([(1, 0), (1, 0), (2, 0), (1, 0), (2, 1)], [False] * 5, id="duplicates and late ones"),
    ],
)
def test_a_gap_is_reported_by_the_beat_of_the_push_that_mends_it(heard, pulls):
    numbers = Heard()
    assert [numbers.must_pull(Message("a", number, beat=beat), 0) for number, beat in heard] == pulls


def test_a_sender_that_said_nothing_for_long_is_forgotten():
    numbers = Heard()
    numbers.must_pull(Message("a", 5, beat=1), 100)
    numbers.drop_silent(100)
    assert not numbers.must_pull(Message("a", 5, beat=2), 101)
    numbers.drop_silent(102)
    assert numbers.must_pull(Message("a", 5, beat=3), 103)

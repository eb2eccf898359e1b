"""Expiry and refresh: Y6, and what a replica learns that starts late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_states import Changing
from sync_replicas import LIFE_S, PERIOD_S, TELLING, TTL_S, few_examples, play

from aibrix_operator.statesync.slices import COUNT, RollingRefresh, slice_of


@pytest.mark.acceptance("GW-129")
@few_examples
@given(rewritten_after_s=st.one_of(st.none(), st.floats(1, TTL_S - 100)))
def test_y6_an_entity_that_nobody_rewrites_is_gone_after_its_ttl(backend, rewritten_after_s):
    async def story(world):
        state = Changing()
        replica = world.replica(state)
        state.put("x")
        await replica.cycle()
        if rewritten_after_s is not None:
            await world.advance(rewritten_after_s)
            state.changed("x")
            await replica.cycle()
        await world.advance(TTL_S - 60)
        assert set(await world.entities("changing")) == {"x"}
        await world.advance(60)
        assert await world.entities("changing") == {}

    play(backend, story)


@pytest.mark.acceptance("GW-128")
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("telling", [False, True])
def test_an_entity_used_once_is_known_to_a_replica_that_starts_after_two_and_a_half_ttls(backend, count, telling):
    """Five minutes at a TTL of two: the refresh holds it in Redis at every moment between."""

    async def story(world):
        replicas = [await world.telling() if telling else world.replica() for _ in range(count)]
        for n in range(200):
            replicas[0].times.use(str(n))
        await world.round()
        await world.all_heard()
        await world.round()
        for _ in range(30):
            await world.advance(PERIOD_S)
            assert len(await world.entities()) == 200
            await world.round()
            await world.all_heard()
        late = world.replica()
        await late.cycle()
        assert len(late.times.live_ids()) == 200

    play(backend, story)


@pytest.mark.acceptance("GW-128")
def test_replicas_that_hear_each_other_share_the_refresh(backend):
    async def story(world):
        replicas = [await world.telling() for _ in range(3)]
        for n in range(640):
            replicas[0].times.use(str(n))
        await world.round()
        await world.all_heard()
        rounds = 30
        for _ in range(rounds):
            for replica in replicas:
                await replica.cycle()
                await world.all_heard()
            await world.advance(PERIOD_S)
        refreshed = sum(r.count("entities_total", namespace="times", op="refreshed") for r in replicas)
        shortest_s = TTL_S / 2 - 1.1 * PERIOD_S
        assert 640 * rounds * PERIOD_S / (TTL_S / 2) * 0.8 <= refreshed <= 640 * rounds * PERIOD_S / shortest_s

    play(backend, story)


@pytest.mark.acceptance("GW-128")
def test_what_nobody_uses_any_more_is_not_kept_alive(backend):
    async def story(world):
        replicas = [await world.telling() for _ in range(2)]
        replicas[0].times.use("x")
        for _ in range(int((LIFE_S + TTL_S) / PERIOD_S) + 1):
            await world.round()
            await world.all_heard()
            await world.advance(PERIOD_S)
        assert await world.entities() == {}
        assert [r.times.last_used_ns("x") for r in replicas] == [None, None]

    play(backend, story)


@pytest.mark.parametrize("telling", [False, True])
def test_a_redis_that_was_emptied_is_filled_again_after_two_looks(backend, telling):
    async def story(world):
        state = world.times(life_s=TTL_S)
        replica = await world.telling(state) if telling else world.replica(state)
        for n in range(300):
            replica.times.use(str(n))
        await replica.cycle()
        await world.all_heard()
        world.clock.s += TELLING.repair_period_s * 1.1
        await world.redis.flushall()
        await replica.cycle()
        assert await world.entities() == {}
        await replica.cycle()
        assert len(await world.entities()) == 300

    play(backend, story)


@given(
    now_s=st.integers(0, 10**6), interval_s=st.integers(1, 10**4), drawn=st.lists(st.floats(0, 0.999), min_size=COUNT)
)
def test_each_slice_is_due_once_an_interval(now_s, interval_s, drawn):
    refresh = RollingRefresh(interval_s, now_s, drawn)
    assert refresh.due(now_s + interval_s) == frozenset(range(COUNT))
    refresh.written({0, 5, -1, COUNT}, now_s + interval_s)
    assert refresh.due(now_s + interval_s) == frozenset(range(COUNT)) - {0, 5}


@given(st.text())
def test_an_entity_is_in_the_same_slice_on_every_replica(entity):
    assert slice_of(entity) == slice_of(str(entity))
    assert 0 <= slice_of(entity) < COUNT
    assert (slice_of("0"), slice_of("block"), slice_of("é")) == (33, 34, 62)

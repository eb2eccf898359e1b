"""Deletion: Y5, tombstones and their end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_states import Changing, Deletable
from sync_replicas import PERIOD_S, TTL_S, few_examples, play

pytestmark = pytest.mark.acceptance("GW-129")


@few_examples
@given(order=st.lists(st.integers(0, 2), max_size=14), rewriting=st.booleans())
def test_y5_no_replica_shows_a_deleted_entity_again_before_its_tombstone_ends(backend, order, rewriting):
    """B holds a stale copy and pushes it whole in each of its cycles."""

    async def story(world):
        states = [Deletable("plain", x=b"1", y=b"1") for _ in range(3)]
        replicas = [world.replica(state) for state in states]
        await world.round()
        await replicas[0].sync.delete("plain", "x")
        gone = {0}
        for at in order:
            if rewriting:
                states[1].held["x"] = b"0"
            await replicas[at].cycle()
            if not rewriting or at != 1:
                gone.add(at)
            assert not any("x" in states[n].held for n in gone)
        assert all("y" in state.held for state in states)

    play(backend, story)


@few_examples
@given(order=st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_y5_a_strictly_newer_write_ends_a_deletion_at_once(backend, order):
    async def story(world):
        replicas = [world.replica() for _ in range(3)]
        replicas[1].times.use("x")
        await world.round()
        world.clock.s += 1
        replicas[0].times.delete("x")
        await world.round()
        await world.round()
        assert [r.times.last_used_ns("x") for r in replicas] == [None] * 3
        world.clock.s += 1
        replicas[2].times.use("x")
        for at in order:
            await replicas[at].cycle()
        await replicas[2].cycle()
        await world.round()
        assert [r.times.last_used_ns("x") for r in replicas] == [world.clock.now_ns()] * 3

    play(backend, story)


@pytest.mark.acceptance("GW-124")
def test_a_tombstone_removes_the_entity_and_after_its_ttl_a_new_write_is_accepted(backend):
    async def story(world):
        a, b = Deletable("plain", x=b"1"), Deletable("plain")
        replicas = [world.replica(a), world.replica(b)]
        await world.round()
        assert b.held == {"x": b"1"}
        await replicas[0].sync.delete("plain", "x")
        await replicas[1].cycle()
        assert b.held == {}
        for _ in range(5):
            await world.advance(PERIOD_S)
            await world.round()
            assert (a.held, b.held) == ({}, {})
        assert not await replicas[0].sync.put("plain", "x", b"2")
        b.held["x"] = b"2"
        await world.round()
        assert (await world.entities("plain"))["x"] == b"+"
        await world.advance(TTL_S)
        b.held["x"] = b"3"
        await world.round()
        await world.round()
        assert a.held == {"x": b"3"}

    play(backend, story)


def test_a_deletion_is_not_remembered_for_longer_than_its_tombstone_lasts(backend):
    """Replicas that mend each other's tombstones must not keep an entity deleted for ever."""

    async def story(world):
        a, b, c = (Deletable("plain", x=b"1") for _ in range(3))
        replicas = [world.replica(state) for state in (a, b, c)]
        await replicas[0].sync.delete("plain", "x")
        await world.advance(TTL_S - 2 * PERIOD_S)
        await replicas[1].cycle()
        c.held["x"] = b"1"
        await replicas[2].sync.put("plain", "x", b"1")
        await replicas[1].cycle()
        assert (await world.entities("plain"))["x"] == b"+"
        await world.advance(2 * PERIOD_S + 1)
        b.held["x"] = b"3"
        await replicas[1].cycle()
        assert await world.entities("plain") == {"x": b"3"}

    play(backend, story)


def test_a_value_that_was_written_over_a_tombstone_gives_way_to_it_again(backend):
    async def story(world):
        a, b = Deletable("plain", x=b"1"), Deletable("plain", x=b"1")
        replicas = [world.replica(a), world.replica(b)]

        async def deletes_meanwhile(op, namespace, what):
            if op == "write" and "x" in what and a.held:
                a.held.clear()
                await replicas[0].sync.delete("plain", "x")

        replicas[1].store.before = deletes_meanwhile
        await replicas[1].cycle()
        assert await world.entities("plain") == {"x": b"1"}
        await replicas[0].cycle()
        assert await world.entities("plain") == {"x": b"+"}
        await replicas[1].cycle()
        assert (a.held, b.held) == ({}, {})

    play(backend, story)


def test_a_deletion_during_our_own_push_of_the_entity_wins(backend):
    async def story(world):
        state = Deletable("plain", x=b"1")
        replica = world.replica(state)

        async def deletes_meanwhile(op, namespace, what):
            if op == "write" and what == {"x": b"1"}:
                await replica.sync.delete("plain", "x")

        replica.store.before = deletes_meanwhile
        await replica.cycle()
        assert await world.entities("plain") == {"x": b"+"}

    play(backend, story)


def test_without_tombstones_a_deletion_removes_the_key(backend):
    async def story(world):
        state = Changing()
        replica = world.replica(state)
        state.put("x", "y")
        await replica.cycle()
        state.delete("x")
        await replica.cycle()
        assert set(await world.entities("changing")) == {"y"}
        assert replica.count("entities_total", namespace="changing", op="push_deleted") == 1
        await replica.sync.delete("changing", "y")
        assert await world.entities("changing") == {}

    play(backend, story)


def test_a_pull_does_not_bring_back_what_was_deleted_here_and_not_pushed_yet(backend):
    async def story(world):
        a, b = world.replica(), world.replica()
        a.times.use("x")
        state = Changing()
        c = world.replica(state)
        state.put("x")
        await world.round()
        world.clock.s += 1
        a.times.delete("x")
        state.delete("x")
        await a.cycle()
        await c.cycle()
        await b.cycle()
        assert (a.times.last_used_ns("x"), b.times.last_used_ns("x"), state.held) == (None, None, {})

    play(backend, story)


def test_an_older_tombstone_does_not_take_the_place_of_a_newer_one(backend):
    async def story(world):
        a, b = world.replica(), world.replica()
        a.times.delete("x")
        world.clock.s += 2
        b.times.delete("x")
        await b.cycle()

        await a.sync.cycle()
        await world.round()
        assert await world.entities() == {"x": b'{"deleted_at":%d}' % world.clock.now_ns()}

    play(backend, story)

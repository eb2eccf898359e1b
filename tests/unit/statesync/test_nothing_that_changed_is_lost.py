"""Pushing: Y3, Y4, Y7, Y17, and batches."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_states import Changing, Plain
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from sync_replicas import SLOW, TTL_S, few_examples, play

from aibrix_operator.statesync.options import Options

pytestmark = pytest.mark.acceptance("GW-129")


@few_examples
@given(data=st.data())
def test_y3_what_changes_at_any_moment_of_a_push_is_in_redis_after_the_next(backend, data):
    async def story(world):
        state = Changing()
        replica = world.replica(state)
        state.put(*(f"e{n}" for n in range(60)))
        moments = data.draw(st.sets(st.integers(0, 5), min_size=1))
        asked = 0

        async def changes(op, namespace, what):
            nonlocal asked
            if op == "write":
                if asked in moments:
                    state.put(f"e{asked}", f"new{asked}", data=b"w%d" % asked)
                asked += 1

        setattr(replica.store, data.draw(st.sampled_from(["before", "after"])), changes)
        await replica.cycle()
        replica.store.before = replica.store.after = nothing_more
        await replica.cycle()
        assert await world.entities("changing") == state.held
        assert state.dirty_count == 0

    play(backend, story)


async def nothing_more(op, namespace, what) -> None:
    """The pushes after the changes are left alone."""


@pytest.mark.acceptance("GW-126")
def test_a_write_during_a_push_is_pushed_in_the_next_cycle(backend):
    async def story(world):
        state = Changing()
        replica = world.replica(state)
        state.put("a", data=b"1")

        async def writes_meanwhile(op, namespace, what):
            if op == "write" and state.held["a"] == b"1":
                state.put("a", data=b"2")

        replica.store.after = writes_meanwhile
        await replica.cycle()
        assert await world.entities("changing") == {"a": b"1"}
        await replica.cycle()
        assert await world.entities("changing") == {"a": b"2"}

    play(backend, story)


@pytest.mark.acceptance("GW-126")
def test_a_dirty_set_whose_entities_are_all_evicted_is_empty_afterwards(backend):
    async def story(world):
        state = Changing()
        replica = world.replica(state)
        state.put("a", "b")
        state.evict("a", "b")
        assert await replica.cycle()
        assert state.dirty_count == 0
        assert replica.store.ops("write") == []

    play(backend, story)


def test_what_is_evicted_while_redis_is_away_does_not_pile_up(backend):
    async def story(world):
        state = Changing()
        replica = world.replica(state)

        async def away(op, namespace, what):
            raise RedisConnectionError("gone")

        replica.store.before = away
        state.put(*(f"e{n}" for n in range(100)))
        state.evict(*(f"e{n}" for n in range(90)))
        assert not await replica.cycle()
        assert state.dirty_count == 10
        assert len(replica.store.ops("write")) == 1

    play(backend, story)


@pytest.mark.parametrize("away", [pytest.param(True, id="Redis away"), pytest.param(False, id="one refused")])
@few_examples
@given(failing=st.integers(0, 3))
def test_y4_a_failed_pipeline_leaves_all_its_ids_dirty(backend, away, failing):
    """Redis being away ends the push; a pipeline that Redis refuses does not hold up those after it."""

    async def story(world):
        state = Changing()
        replica = world.replica(state)
        state.put(*(f"e{n}" for n in range(90)))
        asked = 0

        async def fails(op, namespace, what):
            nonlocal asked
            if op == "write":
                asked += 1
                if asked == failing + 1:
                    raise RedisConnectionError("gone") if away else ResponseError("OOM")

        replica.store.before = fails
        assert not await replica.cycle()
        batches = [set(what) for _, _, what in replica.store.ops("write")]
        lost = batches[failing]
        written = set().union(*batches) - lost
        assert len(batches) == (failing + 1 if away else 4)
        assert set(await world.entities("changing")) == written
        assert state.dirty_count == 90 - len(written)
        assert replica.count("dirty_entities", namespace="changing") == 90 - len(written)
        assert await replica.cycle()
        assert await world.entities("changing") == state.held
        assert state.dirty_count == 0

    play(backend, story)


def test_a_push_that_is_cut_by_its_budget_gives_back_what_it_did_not_write(backend):
    async def story(world):
        state = Changing()
        replica = world.replica(state, options=dataclasses.replace(SLOW, op_timeout_s=2.0))
        state.put(*(f"e{n}" for n in range(60)))

        async def hangs(op, namespace, what):
            if op == "write" and len(replica.store.ops("write")) == 2:
                await asyncio.Event().wait()

        replica.store.before = hangs
        assert not await replica.cycle()
        assert state.dirty_count == 35
        assert replica.count("errors_total", namespace="changing", phase="push") == 1

    play(backend, story)


@few_examples
@given(acts=st.lists(st.tuples(st.sampled_from(["use", "delete", "put", "remove", "cycle"]), st.sampled_from("abc"))))
def test_y7_every_key_has_a_ttl_of_at_most_the_record_ttl(backend, acts):
    async def story(world):
        replica = world.replica(world.times(), Plain(x=b"1"))
        for what, entity in acts:
            world.clock.s += 1
            if what == "use":
                replica.times.use(entity)
            elif what == "delete":
                replica.times.delete(entity)
            elif what == "put":
                await replica.sync.put("times", entity, b"%d" % world.clock.now_ns())
            elif what == "remove":
                await replica.sync.delete("times", entity)
            else:
                await replica.cycle()
            assert all(0 < ttl_s <= TTL_S for ttl_s in await world.ttls_s())

    play(backend, story)


@pytest.mark.parametrize("size", [1, 24, 25, 26, 199, 200, 201, 401])
def test_y17_batching_does_not_change_what_is_written_or_read(backend, size):
    async def story(world):
        options = Options(
            period_s=1000, record_ttl_s=TTL_S, announce=False, write_batch=size, mget_batch=size, scan_count=size
        )
        writer = world.replica(Changing(), Plain(**{f"p{n}": b"%d" % n for n in range(130)}), options=options)
        reader = world.replica(Changing(), Plain(), options=options)
        writer.states[0].put(*(f"e{n}" for n in range(401)))
        writer.states[0].delete(*(f"d{n}" for n in range(30)))
        assert await writer.cycle()
        assert await reader.cycle()
        for state, seen in zip(writer.states, reader.states, strict=True):
            assert await world.entities(state.namespace) == state.held == seen.held

    play(backend, story)


@pytest.mark.acceptance("GW-123")
def test_250_keys_are_read_by_200_and_50_and_60_dirty_written_by_25_25_and_10(backend):
    async def story(world):
        state, reading = Changing(), Changing()
        replica, other = world.replica(state), world.replica(reading)
        state.put(*(f"e{n}" for n in range(60)))
        await replica.cycle()
        assert [len(what) for _, _, what in replica.store.ops("write")] == [25, 25, 10]
        state.put(*(f"e{n}" for n in range(250)))
        await replica.cycle()
        batches: list[int] = []

        async def notes(op, namespace, what):
            if op == "batch":
                batches.append(len(what))

        other.store.after = notes
        await other.cycle()
        assert batches == [200, 50]

    play(backend, story)


@pytest.mark.acceptance("GW-123")
def test_10_001_entries_are_all_written_with_a_warning(backend):
    async def story(world):
        replica = world.replica(Plain(**{f"e{n}": b"v" for n in range(10_001)}))
        assert await replica.cycle()
        assert len(await world.entities("plain")) == 10_001
        assert replica.count("capacity_warnings_total", namespace="plain", kind="entries") == 1
        assert replica.count("snapshot_entries", namespace="plain") == 10_001
        assert replica.count("snapshot_bytes", namespace="plain") == 10_001

    play(backend, story)


def test_entries_of_more_than_512_kib_are_written_with_a_warning(backend):
    async def story(world):
        replica = world.replica(Plain(big=b"v" * (512 * 1024 + 1)))
        assert await replica.cycle()
        assert replica.count("capacity_warnings_total", namespace="plain", kind="bytes") == 1
        assert len((await world.entities("plain"))["big"]) == 512 * 1024 + 1

    play(backend, story)

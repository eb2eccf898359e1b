"""One cycle: Y10, Y11, Y14, Y15, Y20."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_states import Ageing, Changing, Hooked, Plain
from redis.exceptions import ConnectionError as RedisConnectionError
from sync_replicas import SLOW, few_examples, play

pytestmark = pytest.mark.acceptance("GW-129")

READS = ("entities", "fetch", "remaining_s")


@few_examples
@given(count=st.integers(1, 4), failing=st.integers(0, 4))
def test_y10_all_pulls_precede_all_pushes_in_every_cycle(backend, count, failing):
    async def story(world):
        replica = world.replica(*(Plain(f"n{n}", x=b"1") for n in range(count)))

        async def fails(op, namespace, what):
            if namespace == f"n{failing}":
                raise RedisConnectionError("gone")

        replica.store.before = fails
        await replica.cycle()
        ops = [op in READS for op, _, _ in replica.store.calls]
        assert ops == sorted(ops, reverse=True)
        assert sum(ops) == count
        assert len(ops) == 2 * count

    play(backend, story)


@few_examples
@given(
    hooks=st.frozensets(st.sampled_from(["start", "end"])),
    failing=st.sampled_from(["nothing", "entities", "batch", "write", "apply"]),
)
def test_y11_hooks_pair_up_around_the_pull_and_never_around_the_push(backend, hooks, failing):
    async def story(world):
        seeding = world.replica(Plain("hooked", x=b"unreadable" if failing == "apply" else b"1"))
        await seeding.cycle()
        state = Hooked("hooked", y=b"1")
        state.failing = hooks
        replica = world.replica(state)

        async def fails(op, namespace, what):
            if op == failing:
                raise RedisConnectionError("gone")

        replica.store.before = replica.store.after = fails
        good = await replica.cycle()
        assert good == (failing in ("nothing", "apply"))
        names = [name for name, _ in state.log]
        assert names.count("start") == names.count("end") == 1
        assert names[0] == "start"
        assert names.index("end") < names.index("snapshot")
        assert "apply" not in names[names.index("end") :]

    play(backend, story)


@few_examples
@given(old=st.sets(st.sampled_from("abcdef")))
def test_y14_stale_values_are_deleted_once_and_never_applied(backend, old):
    async def story(world):
        writer = world.replica(Plain("ageing", **{e: b"old" if e in old else b"new" for e in "abcdef"}))
        await writer.cycle()
        state = Ageing("ageing")
        replica = world.replica(state)
        for _ in range(2):
            await replica.cycle()
        assert set(state.held) == set(await world.entities("ageing")) == set("abcdef") - old
        deleted = [what for _, _, what in replica.store.ops("delete_if")]
        assert deleted == ([dict.fromkeys(old, b"old")] if old else [])
        assert replica.count("entities_total", namespace="ageing", op="stale_deleted") == len(old)

    play(backend, story)


@pytest.mark.acceptance("GW-125")
def test_a_value_that_was_written_anew_meanwhile_is_not_deleted_as_stale(backend):
    async def story(world):
        await world.replica(Plain("ageing", a=b"old", b=b"old")).cycle()
        replica = world.replica(Ageing("ageing"))
        writer = world.replica(Plain("ageing"))

        async def writes_meanwhile(op, namespace, what):
            if op == "delete_if":
                await writer.sync.put("ageing", "a", b"new")

        replica.store.before = writes_meanwhile
        await replica.cycle()
        assert await world.entities("ageing") == {"a": b"new"}

    play(backend, story)


@pytest.mark.acceptance("GW-125")
def test_one_value_of_ten_that_is_not_understood_leaves_nine_applied(backend):
    async def story(world):
        values = {f"e{n}": b"1" for n in range(9)} | {"bad": b"unreadable"}
        await world.replica(Plain(**values)).cycle()
        state = Plain()
        replica = world.replica(state)
        assert await replica.cycle()
        assert len(state.held) == 9
        assert replica.count("entities_total", namespace="plain", op="applied") == 9
        assert replica.count("entities_total", namespace="plain", op="apply_error") == 1

    play(backend, story)


@pytest.mark.acceptance("GW-125")
@few_examples
@given(failing=st.integers(0, 2), op=st.sampled_from(["entities", "write"]))
def test_y15_a_namespace_that_fails_changes_nothing_for_the_others(backend, failing, op):
    async def story(world):
        await world.replica(*(Plain(f"n{n}", theirs=b"1") for n in range(3))).cycle()
        states = [Plain(f"n{n}", ours=b"1") for n in range(3)]
        replica = world.replica(*states)

        async def fails(asked, namespace, what):
            if asked == op and namespace == f"n{failing}":
                raise RedisConnectionError("gone")

        replica.store.before = fails
        assert not await replica.cycle()
        for n, state in enumerate(states):
            if n != failing:
                assert set(state.held) == set(await world.entities(state.namespace)) == {"ours", "theirs"}
        assert replica.count("cycles_total", result="error") == 1
        assert replica.count("last_success_timestamp_seconds") == 0

    play(backend, story)


def test_a_component_that_raises_fails_its_own_namespace_alone(backend):
    async def story(world):
        broken, other = Plain("broken"), Plain("other", x=b"1")
        broken.snapshot = lambda: 1 / 0  # type: ignore[method-assign]
        replica = world.replica(broken, other)
        assert not await replica.cycle()
        assert await world.entities("other") == {"x": b"1"}
        assert replica.count("errors_total", namespace="broken", phase="push") == 1

    play(backend, story)


def test_a_slow_namespace_cannot_take_the_time_of_the_others(backend):
    async def story(world):
        options = dataclasses.replace(SLOW, op_timeout_s=2.0)
        slow, other = Plain("slow", x=b"1"), Plain("other", x=b"1")
        replica = world.replica(slow, other, options=options)

        async def hangs(op, namespace, what):
            if namespace == "slow":
                await asyncio.Event().wait()

        replica.store.before = hangs
        assert not await replica.cycle()
        assert await world.entities("other") == {"x": b"1"}
        assert replica.count("errors_total", namespace="slow", phase="pull") == 1

    play(backend, story)


@few_examples
@given(values=st.dictionaries(st.text(max_size=8), st.binary(max_size=40), max_size=12))
def test_y20_corrupt_values_are_counted_and_left_alone(backend, values):
    """JSON of other shapes, half a number, a tombstone without its time, bytes that are no text."""

    async def story(world):
        changing = Changing("times")
        writer = world.replica(changing)
        changing.held.update(
            values | {"good": b"%d" % world.clock.now_ns(), "{}": b"{}", "float": b"1.5", "bool": b"true"}
        )
        changing.changed(*changing.held)
        await writer.cycle()
        replica = world.replica()
        assert await replica.cycle()
        assert replica.times.last_used_ns("good") == world.clock.now_ns()
        assert replica.count("entities_total", namespace="times", op="apply_error") >= 3
        kept = await world.entities("times")
        missing = changing.held.keys() - kept.keys()
        assert all(changing.held[entity].strip().lstrip(b"-").isdigit() for entity in missing)  # too old, but a time

    play(backend, story)

"""Merging, convergence, quiet: Y1, Y2, Y9, Y19."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sync_replicas import LIFE_S, PERIOD_S, SLOW, TTL_S, World, few_examples, play

from aibrix_operator.statesync import news
from aibrix_operator.statesync.times import NewestTimes

pytestmark = pytest.mark.acceptance("GW-129")
IDS = st.sampled_from(["a", "b:c", "*", "é", "a" * 40])
TIMES = st.integers(1, 50)


def merged(values: list[tuple[str, int]]) -> dict[str, bytes]:
    times = NewestTimes("times", 1e6, lambda: 60)
    for entity, ns in values:
        times.apply_remote(entity, b"%d" % ns)
    return times.snapshot()


@given(st.lists(st.tuples(IDS, TIMES), min_size=1, max_size=4))
def test_y1_merges_are_idempotent_commutative_and_associative(values):
    expected = merged(values)
    for order in itertools.permutations(values):
        assert merged([*order, *order]) == expected
    halves = [merged(values[::2]), merged(values[1::2])]
    assert merged([(e, int(d)) for half in halves for e, d in half.items()]) == expected


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("use"), st.integers(0, 2), IDS),
        st.tuples(st.just("delete"), st.integers(0, 2), IDS),
        st.tuples(st.just("cycle"), st.integers(0, 2), st.none()),
    ),
    max_size=25,
)
ROUNDS = st.lists(st.permutations(range(3)), min_size=2, max_size=2)


async def act(world: World, acts) -> None:
    for what, at, entity in acts:
        world.clock.s += 1
        replica = world.replicas[at]
        if what == "use":
            replica.times.use(entity)
        elif what == "delete":
            replica.times.delete(entity)
        else:
            await replica.cycle()


def states(world: World) -> list[dict[str, bytes]]:
    return [replica.times.snapshot() for replica in world.replicas]


def newest(acts) -> set[str]:
    """Which entities were used last, and not deleted last."""
    last = {entity: what for what, _, entity in acts if entity is not None}
    return {entity for entity, what in last.items() if what == "use"}


@few_examples
@given(acts=ACTS, rounds=ROUNDS)
def test_y2_two_cycles_after_the_last_write_all_replicas_hold_the_same(backend, acts, rounds):
    async def story(world):
        for _ in range(3):
            world.replica()
        await act(world, acts)
        for order in rounds:
            await world.round(order)
        first, second, third = states(world)
        assert first == second == third
        assert first.keys() == newest(acts)

    play(backend, story)


@few_examples
@given(acts=ACTS, rounds=ROUNDS, lost=st.lists(st.booleans(), max_size=60))
def test_y2_holds_on_the_fast_path_too_whichever_messages_are_lost(backend, acts, rounds, lost):
    """A lost change is found by the beat after the push. Who loses beats too has no connection, and begins anew."""

    async def story(world):
        for _ in range(3):
            await world.telling()
        drops = iter(lost)
        for replica in world.replicas:
            replica.store.hears = lambda payload: news.decode(payload).beat > 0 or not next(drops, False)
        await act(world, acts)
        await world.all_heard()
        for replica in world.replicas:
            replica.store.hears = lambda payload: True
        for order in rounds:
            await world.round(order)
            await world.all_heard()
        first, second, third = states(world)
        assert first == second == third
        assert first.keys() == newest(acts)

    play(backend, story)


@few_examples
@given(data=st.data(), entities=st.lists(IDS, min_size=1, max_size=6))
def test_y2_holds_when_cycles_interleave_at_every_question(backend, data, entities):
    """A cycle may write over what another wrote since it read: the next pull sees it, the push after it mends it."""

    async def story(world):
        a, b = world.replica(), world.replica()
        for at, entity in enumerate(entities):
            world.clock.s += 1
            world.replicas[data.draw(st.integers(0, 1)) if at else 0].times.use(entity)
        moment = data.draw(st.sampled_from(["entities", "batch", "write"]))
        order = data.draw(st.sampled_from(["before", "after"]))
        cut_in: list[str] = []

        async def another_cycles(op, namespace, what):
            if op == moment and not cut_in:
                cut_in.append(op)
                world.clock.s += 1
                b.times.use(entities[0])
                await b.cycle()

        setattr(a.store, order, another_cycles)
        await a.cycle()
        for _ in range(3):
            await world.round(data.draw(st.permutations(range(2))))
        assert states(world)[0] == states(world)[1]

    play(backend, story)


@pytest.mark.acceptance("GW-128")
@pytest.mark.parametrize("life_s", [pytest.param(TTL_S, id="no refresh needed"), pytest.param(LIFE_S, id="refreshed")])
def test_y9_idle_replicas_write_nothing_after_one_exchange_but_their_refresh(backend, life_s):
    async def story(world):
        replicas = [world.replica(world.times(life_s=life_s)) for _ in range(2)]
        for n in range(40):
            world.clock.s += 1
            replicas[n % 2].times.use(str(n % 30))
        await world.round()
        await world.round()
        pushed = [r.count("entities_total", namespace="times", op="pushed") for r in replicas]
        for replica in replicas:
            replica.store.calls.clear()
        for _ in range(10):
            await world.advance(PERIOD_S)
            await world.round()
        assert [r.count("entities_total", namespace="times", op="pushed") for r in replicas] == pushed
        written = sum(len(values) for r in replicas for _, _, values in r.store.ops("write"))
        refreshed = sum(r.count("entities_total", namespace="times", op="refreshed") for r in replicas)
        assert written == refreshed
        assert (refreshed > 0) == (life_s > TTL_S)
        assert not any(r.store.ops("delete", "delete_if", "replace_if") for r in replicas)

    play(backend, story)


@few_examples
@given(acts=ACTS)
def test_y19_a_replica_that_starts_empty_learns_everything_before_it_writes_anything(backend, acts):
    async def story(world):
        for _ in range(3):
            world.replica()
        await act(world, acts)
        await world.round()
        await world.round()
        late = world.replica(options=SLOW)
        await late.cycle()
        assert late.times.snapshot() == world.replicas[0].times.snapshot()
        assert late.store.ops("write", "delete", "delete_if", "replace_if") == []

    play(backend, story)

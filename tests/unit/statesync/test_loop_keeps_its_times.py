"""The loop's times and life: Y12, Y13, Y16."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_states import Plain
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from sync_replicas import SLOW, Backend, few_examples, play, until, world

from aibrix_operator.sim import loop as virtual
from aibrix_operator.statesync import intervals
from aibrix_operator.statesync.keys import BadName
from aibrix_operator.statesync.options import Options, StatesyncSettings
from aibrix_operator.statesync.sync import StatesyncNeedsRedis, state_sync

pytestmark = pytest.mark.acceptance("GW-129")


@given(
    period_s=st.sampled_from([0.5, 10.0, 45.0, 60.0, 300.0]),
    outcomes=st.lists(st.booleans(), min_size=1, max_size=80),
    seed=st.integers(),
)
def test_y12_intervals_keep_to_the_period_double_after_failures_and_come_back(period_s, outcomes, seed):
    rng, failures, last_s = random.Random(seed), 0, period_s
    for good in outcomes:
        failures = 0 if good else failures + 1
        interval_s = intervals.next_interval_s(period_s, failures, rng.random())
        base_s = min(period_s * 2**failures, max(60.0, period_s))
        assert max(period_s / 2, 0.9 * base_s) - 1e-9 <= interval_s <= 1.1 * base_s + 1e-9
        assert intervals.backoff_s(period_s, failures) == pytest.approx(base_s - period_s)
        last_s = interval_s
    assert last_s <= 1.1 * max(60.0, period_s) + 1e-9


def test_y13_the_first_delay_is_spread_over_half_a_period():
    delays = [intervals.first_delay_s(10.0, random.Random(seed).random()) for seed in range(1000)]
    assert all(0 <= delay < 5 for delay in delays)
    assert {int(delay * 2) for delay in delays} == set(range(10))


class Cycles:
    """A store that notes when each cycle began, and fails while told to."""

    def __init__(self, replica) -> None:
        self.at_s: list[float] = []
        self.fails: list[bool] = []
        replica.store.before = self._note

    async def _note(self, op, namespace, what):
        if op == "entities":
            self.at_s.append(asyncio.get_running_loop().time())
            if self.fails and self.fails.pop(0):
                raise RedisConnectionError("gone")


@pytest.mark.acceptance("GW-122")
@pytest.mark.parametrize("seed", range(5))
def test_a_loop_of_ten_seconds_starts_within_five_and_backs_off_to_a_minute(seed):
    async def story():
        async with world(Backend()) as made:
            made.clock.now_s = asyncio.get_running_loop().time
            for _ in range(seed + 1):
                replica = made.replica(Plain(), options=Options(announce=False))
            cycles = Cycles(replica)
            cycles.fails = [False, False, True, True, True, True, False, False]
            replica.sync.start()
            replica.sync.start()
            await asyncio.sleep(400)
            await replica.sync.stop()
            return cycles.at_s

    at_s = virtual.run(story())
    assert 0 <= at_s[0] < 5
    gaps_s = [later - sooner for sooner, later in itertools.pairwise(at_s)]
    for gap_s, base_s in zip(gaps_s[:8], [10, 10, 20, 40, 60, 60, 10, 10], strict=True):
        assert 0.9 * base_s <= gap_s <= 1.1 * base_s + 0.1


@pytest.mark.acceptance("GW-127")
def test_what_is_registered_after_the_start_or_without_a_name_is_ignored(backend):
    async def story(made):
        replica = made.replica(Plain(x=b"1"))
        assert not replica.sync.register(Plain(""))
        assert not replica.sync.register(Plain("a:b"))
        assert not replica.sync.register(Plain("plain"))
        replica.sync.start()
        assert not replica.sync.register(Plain("late", x=b"1"))
        await replica.sync.stop()
        assert not replica.sync.register(Plain("later", x=b"1"))
        await replica.cycle()
        assert {namespace for _, namespace, _ in replica.store.calls} == {"plain"}
        for bad in ("", "a:b"):
            with pytest.raises(BadName):
                await replica.sync.put(bad, "x", b"1")
            with pytest.raises(BadName):
                await replica.sync.delete(bad, "x")

    play(backend, story)


@few_examples
@given(calls=st.lists(st.sampled_from(["start", "stop", "register", "wait"]), max_size=12), hanging=st.booleans())
def test_y16_start_stop_and_register_in_any_order_end_in_time(calls, hanging):
    """In virtual time: a stop takes at most its limit and the second in which a cut cycle ends."""

    async def story():
        async with world(Backend()) as made:
            now_s = asyncio.get_running_loop().time
            made.clock.now_s = now_s
            options = dataclasses.replace(SLOW, period_s=10.0, op_timeout_s=500.0, stop_wait_s=90.0)
            replica = made.replica(Plain(), options=options)

            async def hangs(op, namespace, what):
                if hanging:
                    await asyncio.Event().wait()

            replica.store.before = hangs
            started, registered = False, 0
            for call in [*calls, "stop"]:
                if call == "register":
                    registered += 1
                    assert replica.sync.register(Plain(f"n{registered}")) == (not started)
                elif call == "start":
                    replica.sync.start()
                    started = True
                elif call == "stop":
                    began_s = now_s()
                    await replica.sync.stop()
                    assert now_s() - began_s <= 91
                else:
                    await asyncio.sleep(25)
            return [t for t in asyncio.all_tasks() if t.get_name().startswith("statesync")]

    assert virtual.run(story()) == []


@pytest.mark.acceptance("GW-127")
def test_stop_returns_in_time_while_redis_hangs(own_redis_server):
    async def story():
        async with world(Backend(own_redis_server.url)) as made:
            options = dataclasses.replace(SLOW, period_s=0.02, op_timeout_s=60.0, stop_wait_s=0.3)
            replica = made.replica(Plain(x=b"1"), options=options)
            own_redis_server.hang()
            try:
                async with replica.sync:
                    await until(lambda: bool(replica.store.ops("entities")))
                    began_s = asyncio.get_running_loop().time()
                assert asyncio.get_running_loop().time() - began_s < 5
            finally:
                own_redis_server.go_on()

    asyncio.run(story())


@pytest.mark.acceptance("GW-127")
def test_enabled_without_redis_is_a_clear_error_at_start():
    with pytest.raises(StatesyncNeedsRedis, match="AIBRIX_STATESYNC_ENABLED is true and no Redis is configured"):
        state_sync(StatesyncSettings(enabled=True), None, CollectorRegistry())


def test_switched_off_there_is_no_layer():
    assert state_sync(StatesyncSettings(), None, CollectorRegistry()) is None


async def test_switched_on_the_layer_takes_its_times_from_the_environment(monkeypatch):
    monkeypatch.setenv("AIBRIX_STATESYNC_ENABLED", "true")
    monkeypatch.setenv("AIBRIX_STATESYNC_SYNC_PERIOD", "1m30s")
    client = Redis()
    assert state_sync(StatesyncSettings(), client, CollectorRegistry()) is not None
    assert StatesyncSettings().options.period_s == 90
    await client.aclose()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("1m30s", 90), ("500ms", 0.5), ("1h", 3600), ("1.5s", 1.5), ("7", 7), (" 2m ", 120), (3.0, 3)],
)
def test_durations_are_written_as_in_go_or_as_seconds(text, seconds):
    assert StatesyncSettings(sync_period=text).sync_period == seconds


@pytest.mark.parametrize("text", ["", "ten", "10x", "s", "-"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="duration"):
        StatesyncSettings(sync_period=text)


def test_options_of_zero_or_less_are_their_defaults():
    options = Options(
        period_s=-1, op_timeout_s=0, record_ttl_s=-5, stop_wait_s=0, mget_batch=0, write_batch=-1, scan_count=0
    )
    assert options == Options()

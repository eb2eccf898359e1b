"""Which passes run, when, and how often; in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest
from cluster_virtual_time import run
from hypothesis import given, settings
from hypothesis import strategies as st

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.work_queue import WorkQueue


class Passes:
    """Records (time, key) of each pass; a pass lasts ``takes_s`` and raises what ``fails`` holds for its key."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.began: list[tuple[float, str]] = []
        self.takes_s = takes_s
        self.fails: dict[str, list[Exception]] = {}
        self.running: set[str] = set()
        self.most_at_once = 0

    async def __call__(self, key: str) -> None:
        assert key not in self.running, "two passes of one key"
        self.began.append((asyncio.get_running_loop().time(), key))
        self.running.add(key)
        self.most_at_once = max(self.most_at_once, len(self.running))
        try:
            if self.takes_s:
                await asyncio.sleep(self.takes_s)
            if self.fails.get(key):
                raise self.fails[key].pop(0)
        finally:
            self.running.discard(key)


def test_wakes_that_wait_merge_and_keep_their_order():
    async def main() -> None:
        passes = Passes()
        queue = WorkQueue("test", passes)
        for key in ("b", "a", "b", "b", "a"):
            queue.wake(key)
        assert queue.depth == 2
        queue.start()
        await asyncio.sleep(1)
        assert passes.began == [(0, "b"), (0, "a")]
        assert queue.is_idle

    run(main())


def test_wakes_during_a_pass_run_exactly_one_more_afterwards():
    async def main() -> None:
        passes = Passes(takes_s=10)
        queue = WorkQueue("test", passes, workers=4)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(3)
        for _ in range(5):
            queue.wake("a")
        await asyncio.sleep(60)
        assert passes.began == [(0, "a"), (10, "a")]

    run(main())


def test_keys_run_side_by_side_up_to_the_number_of_workers():
    async def main() -> None:
        passes = Passes(takes_s=1)
        queue = WorkQueue("test", passes, workers=3)
        queue.start()
        for key in "abcdefg":
            queue.wake(key)
        await asyncio.sleep(10)
        assert passes.most_at_once == 3
        assert [at for at, _ in passes.began] == [0, 0, 0, 1, 1, 1, 2]

    run(main())


def test_key_that_wakes_itself_does_not_starve_the_others():
    async def main() -> None:
        order: list[str] = []

        async def run_pass(key: str) -> None:
            order.append(key)
            if key == "eager" and len(order) < 10:
                queue.wake(key)

        queue = WorkQueue("test", run_pass)
        for key in ("eager", "x", "y"):
            queue.wake(key)
        queue.start()
        await asyncio.sleep(1)
        assert order[:4] == ["eager", "x", "y", "eager"]

    run(main())


@pytest.mark.parametrize(
    ("delays_s", "expected"),
    [
        pytest.param([30, 10], [10], id="sooner replaces"),
        pytest.param([10, 30], [10], id="later is forgotten"),
        pytest.param([10, 0], [0, 10], id="at once leaves the timer"),
    ],
)
def test_earliest_of_several_times_wins(delays_s, expected):
    async def main() -> None:
        passes = Passes()
        queue = WorkQueue("test", passes)
        queue.start()
        for delay_s in delays_s:
            queue.wake_after("a", delay_s)
        await asyncio.sleep(100)
        assert [at for at, _ in passes.began] == expected

    run(main())


def test_failing_key_comes_back_after_doubling_waits_up_to_a_minute():
    async def main() -> None:
        passes = Passes()
        passes.fails["a"] = [RuntimeError("no")] * 9
        queue = WorkQueue("test", passes)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(1000)
        times = [at for at, _ in passes.began]
        assert [later - sooner for sooner, later in itertools.pairwise(times)] == [
            *(1, 2, 4, 8, 16, 32),
            *(60, 60, 60),
        ]
        assert (queue.passes, queue.failed_passes) == (10, 9)

    run(main())


def test_success_resets_the_backoff_and_other_keys_do_not_share_it():
    async def main() -> None:
        passes = Passes()
        passes.fails["a"] = [RuntimeError("no")] * 3
        queue = WorkQueue("test", passes)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(50)
        passes.fails = {"a": [RuntimeError("again")], "b": [RuntimeError("other")]}
        passes.began.clear()
        queue.wake("a")
        queue.wake("b")
        await asyncio.sleep(5)
        assert passes.began == [(50, "a"), (50, "b"), (51, "a"), (51, "b")]

    run(main())


def test_wake_does_not_wait_for_the_backoff():
    async def main() -> None:
        passes = Passes()
        passes.fails["a"] = [RuntimeError("no")] * 5
        queue = WorkQueue("test", passes)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(0.5)
        queue.wake("a")
        await asyncio.sleep(0.1)
        assert [at for at, _ in passes.began] == [0, 0.5]

    run(main())


def test_server_that_asks_for_more_time_gets_it():
    async def main() -> None:
        passes = Passes()
        passes.fails["a"] = [errors.Unavailable("later", retry_after_s=25)]
        queue = WorkQueue("test", passes)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(100)
        assert [at for at, _ in passes.began] == [0, 25]

    run(main())


def test_forgotten_key_has_neither_timer_nor_failures():
    async def main() -> None:
        passes = Passes()
        passes.fails["a"] = [RuntimeError("no")] * 3
        queue = WorkQueue("test", passes)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(0.5)
        queue.forget("a")
        await asyncio.sleep(100)
        assert len(passes.began) == 1
        queue.wake("a")
        await asyncio.sleep(1.5)
        assert [at for at, _ in passes.began] == [0, 100.5, 101.5]

    run(main())


def test_equal_failures_are_logged_with_one_traceback(caplog):
    async def main() -> None:
        passes = Passes()
        passes.fails["a"] = [RuntimeError("first kind")] * 3 + [RuntimeError("second kind")]
        queue = WorkQueue("test", passes)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(100)

    with caplog.at_level(logging.ERROR):
        run(main())
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False, True]


def test_stop_lets_the_running_pass_end_and_starts_no_other():
    async def main() -> None:
        passes = Passes(takes_s=5)
        queue = WorkQueue("test", passes)
        queue.start()
        queue.wake("a")
        queue.wake("b")
        queue.wake_after("c", 2)
        await asyncio.sleep(1)
        queue.wake("a")
        await queue.stop(grace_s=30)
        assert asyncio.get_running_loop().time() == 5
        await asyncio.sleep(100)
        assert passes.began == [(0, "a")]
        assert (queue.passes, queue.failed_passes) == (1, 0)

    run(main())


def test_pass_that_does_not_end_within_the_grace_is_cancelled():
    async def main() -> None:
        passes = Passes(takes_s=1000)
        queue = WorkQueue("test", passes)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(1)
        await queue.stop(grace_s=30)
        assert asyncio.get_running_loop().time() == 31
        assert passes.running == set()

    run(main())


def test_key_rests_after_a_long_pass_while_its_wakes_merge_and_others_go_on():
    async def main() -> None:
        passes = Passes(takes_s=4)
        queue = WorkQueue("test", passes, rest=0.5)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(4.5)
        for _ in range(3):
            queue.wake("a")
        assert not queue.is_idle
        queue.wake("b")
        await asyncio.sleep(100)
        assert passes.began == [(0, "a"), (4.5, "b"), (8.5, "a")]
        assert queue.is_idle

    run(main())


def test_key_that_nobody_wakes_in_its_rest_runs_no_more():
    async def main() -> None:
        passes = Passes(takes_s=4)
        queue = WorkQueue("test", passes, rest=0.5)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(100)
        queue.wake("a")
        await asyncio.sleep(100)
        assert [at for at, _ in passes.began] == [0, 100]

    run(main())


def test_wake_in_the_rest_runs_when_it_is_over():
    async def main() -> None:
        passes = Passes(takes_s=4)
        queue = WorkQueue("test", passes, rest=0.5)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(5)
        queue.wake("a")
        await asyncio.sleep(100)
        assert [at for at, _ in passes.began] == [0, 6]

    run(main())


def test_stop_does_not_wait_for_a_rest():
    async def main() -> None:
        passes = Passes(takes_s=4)
        queue = WorkQueue("test", passes, rest=10)
        queue.start()
        queue.wake("a")
        await asyncio.sleep(5)
        queue.wake("a")
        await queue.stop(grace_s=30)
        assert asyncio.get_running_loop().time() == 5
        await asyncio.sleep(100)
        assert [at for at, _ in passes.began] == [0]

    run(main())


wakes = st.lists(
    st.tuples(
        st.floats(0, 50, allow_nan=False).map(lambda seconds: round(seconds, 2)),
        st.sampled_from("abc"),
        st.sampled_from([0.0, 0.5, 7.0]),
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(
    wakes=wakes,
    workers=st.integers(1, 3),
    takes_s=st.sampled_from([0.0, 0.3, 4.0]),
    rest=st.sampled_from([0.0, 1.5]),
    failures=st.integers(0, 3),
)
def test_every_wake_is_followed_by_a_pass_that_begins_after_it(wakes, workers, takes_s, rest, failures):
    async def main() -> None:
        passes = Passes(takes_s=takes_s)
        passes.fails["a"] = [RuntimeError("no")] * failures
        queue = WorkQueue("test", passes, workers=workers, rest=rest)
        queue.start()
        loop = asyncio.get_running_loop()
        woken: list[tuple[float, str]] = []
        for at, key, delay_s in sorted(wakes):
            await asyncio.sleep(at - loop.time())
            woken.append((loop.time(), key))
            queue.wake_after(key, delay_s)
        await asyncio.sleep(1000)
        assert queue.is_idle
        assert passes.most_at_once <= workers
        for at, key in woken:
            assert any(began >= at for began, passed in passes.began if passed == key)
        assert len(passes.began) <= len(wakes) + failures

    run(main())

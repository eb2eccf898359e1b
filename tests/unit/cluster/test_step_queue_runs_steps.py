"""One step a key, keys side by side, a bounded number at once; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cluster_virtual_time import run

from aibrix_operator.cluster.step_queue import Finished, StepQueue


def lasting(seconds: float, value: str = "done") -> Callable[[], Awaitable[str]]:
    async def step() -> str:
        await asyncio.sleep(seconds)
        return value

    return step


def summary(finished: Finished[str]) -> tuple[str, object, type[BaseException] | None, float]:
    return finished.key, finished.value, type(finished.error) if finished.error else None, finished.ended_at


def test_key_with_a_step_in_flight_takes_no_other():
    async def main() -> None:
        done: list[Finished[str]] = []
        queue = StepQueue[str]("test", concurrency=8)
        assert queue.submit("pod-a", lasting(5), done.append)
        await asyncio.sleep(2)
        assert not queue.submit("pod-a", lasting(1, "second"), done.append)
        assert queue.in_flight("pod-a") == 0
        await asyncio.sleep(10)
        assert [summary(finished) for finished in done] == [("pod-a", "done", None, 5)]
        assert queue.in_flight("pod-a") is None

    run(main())


def test_keys_go_side_by_side_up_to_the_bound():
    async def main() -> None:
        done: list[Finished[str]] = []
        queue = StepQueue[str]("test", concurrency=2)
        for key in "abc":
            assert queue.submit(key, lasting(5), done.append)
        assert queue.keys_in_flight() == ["a", "b", "c"]
        await asyncio.sleep(20)
        assert [(finished.key, finished.ended_at) for finished in done] == [("a", 5), ("b", 5), ("c", 10)]

    run(main())


def test_key_is_free_again_when_its_end_is_told():
    async def main() -> None:
        taken: list[bool] = []
        queue = StepQueue[str]("test", concurrency=1)

        def then(finished: Finished[str]) -> None:
            taken.append(queue.submit("a", lasting(1)))

        queue.submit("a", lasting(1), then)
        await asyncio.sleep(5)
        assert taken == [True]

    run(main())


def test_error_of_a_step_is_told_and_frees_its_slot():
    async def main() -> None:
        async def broken() -> None:
            raise ValueError("no")

        done: list[Finished[str]] = []
        queue = StepQueue[str]("test", concurrency=1)
        queue.submit("a", broken, done.append)
        queue.submit("b", lasting(1), done.append)
        await asyncio.sleep(5)
        assert [summary(finished) for finished in done] == [("a", None, ValueError, 0), ("b", "done", None, 1)]

    run(main())


def test_stop_lets_the_running_step_end_and_drops_those_without_a_slot():
    async def main() -> None:
        done: list[Finished[str]] = []
        queue = StepQueue[str]("test", concurrency=1)
        queue.submit("a", lasting(5), done.append)
        queue.submit("b", lasting(5), done.append)
        await asyncio.sleep(1)
        await queue.stop(grace_s=30)
        assert [summary(finished) for finished in done] == [
            ("b", None, asyncio.CancelledError, 1),
            ("a", "done", None, 5),
        ]
        assert not queue.submit("c", lasting(1))

    run(main())


def test_step_that_does_not_end_within_the_grace_is_cancelled():
    async def main() -> None:
        done: list[Finished[str]] = []
        queue = StepQueue[str]("test", concurrency=1)
        queue.submit("a", lasting(1000), done.append)
        await asyncio.sleep(1)
        await queue.stop(grace_s=30)
        assert [summary(finished) for finished in done] == [("a", None, asyncio.CancelledError, 31)]

    run(main())


def test_step_that_had_no_turn_before_the_stop_is_told_as_cancelled():
    async def main() -> None:
        done: list[Finished[str]] = []
        queue = StepQueue[str]("test", concurrency=1)
        queue.submit("a", lasting(5), done.append)
        await queue.stop(grace_s=0)
        assert [summary(finished) for finished in done] == [("a", None, asyncio.CancelledError, 0)]
        assert queue.keys_in_flight() == []

    run(main())

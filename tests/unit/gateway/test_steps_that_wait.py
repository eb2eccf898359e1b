"""Steps of a generator, with and without waiting."""

import asyncio

import pytest

from aibrix_operator.gateway import stepping


def told(error):
    return f"fault: {error}"


def test_steps_that_wait_for_nothing_are_over_at_once_and_need_no_loop():
    def steps():
        return 5
        yield

    assert stepping.run(steps(), told) == 5


def test_a_fault_at_once_is_told_at_once():
    def steps():
        raise ValueError("x")
        yield

    assert stepping.run(steps(), told) == "fault: x"


async def test_results_of_what_is_awaited_are_handed_back():
    async def later(value):
        await asyncio.sleep(0)
        return value

    def steps():
        first = yield later(1)
        second = yield later(2)
        return first + second

    assert await stepping.run(steps(), told) == 3


async def test_a_failure_of_what_is_awaited_is_the_steps_to_handle():
    async def fails():
        raise ValueError("x")

    def handles():
        try:
            yield fails()
        except ValueError as error:
            return str(error)

    def lets_go():
        yield fails()

    assert await stepping.run(handles(), told) == "x"
    assert await stepping.run(lets_go(), told) == "fault: x"


async def test_what_is_awaited_and_cancelled_cancels_the_result():
    future = asyncio.get_running_loop().create_future()

    def steps():
        yield future

    result = stepping.run(steps(), told)
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await result


@pytest.mark.parametrize("turns", range(4))
async def test_who_cancels_ends_the_steps_and_what_they_wait_for(turns):
    loop = asyncio.get_running_loop()
    futures, ended = [loop.create_future(), loop.create_future()], []

    def steps():
        try:
            yield from futures
        finally:
            ended.append(True)

    result = stepping.run(steps(), told)
    for _ in range(turns):
        await asyncio.sleep(0)
        if turns == 3 and not futures[0].done():
            futures[0].set_result(None)
    result.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == [True]
    assert futures[1 if turns == 3 else 0].cancelled()

"""Steps that may have to wait: a generator that yields what it waits for, and is sent what came of it.

Steps that wait for nothing are over within the call and touch no event loop. For those that wait there is a future at
once, and no task: who cancels it, however early, closes the generator, whose ``finally`` gives back what it holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[Awaitable[Any], Any, T]
"""(``Any``: each step knows what it asked for.)"""
Fault: TypeAlias = Callable[[Exception], T]
"""What stands for the result of steps that raised."""


def run(steps: Steps[T], fault: Fault[T]) -> T | asyncio.Future[T]:
    """The result, or a future of it."""
    try:
        waited_for = next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    except Exception as error:
        return fault(error)
    return _Walk(steps, fault, waited_for).result


class _Walk(Generic[T]):
    """Goes on with the steps whenever what they wait for is there."""

    def __init__(self, steps: Steps[T], fault: Fault[T], waited_for: Awaitable[Any]) -> None:
        self.result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._steps = steps
        self._fault = fault
        self._waited_for = self._wait_for(waited_for)
        self.result.add_done_callback(self._is_over)

    def _wait_for(self, awaited: Awaitable[Any]) -> asyncio.Future[Any]:
        future = asyncio.ensure_future(awaited)
        future.add_done_callback(self._go_on)
        return future

    def _go_on(self, waited_for: asyncio.Future[Any]) -> None:
        if self.result.done():
            return  # it was cancelled, and _is_over comes next
        try:
            if waited_for.cancelled():
                awaited = self._steps.throw(asyncio.CancelledError())
            elif (problem := waited_for.exception()) is not None:
                awaited = self._steps.throw(problem)
            else:
                awaited = self._steps.send(waited_for.result())
        except StopIteration as end:
            self.result.set_result(end.value)
        except asyncio.CancelledError:
            self.result.cancel()
        except Exception as error:
            self.result.set_result(self._fault(error))
        else:
            self._waited_for = self._wait_for(awaited)

    def _is_over(self, result: asyncio.Future[T]) -> None:
        if result.cancelled():
            self._steps.close()
            self._waited_for.cancel()

"""An event loop whose clock jumps: when every task waits for a time, that time is now.

Controllers run in it unchanged, an hour in seconds, and one schedule runs the same way each time. Real sockets have no
place in it, because nothing in it takes time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Every task waits for something that no task and no timer will bring."""


class Livelock(RuntimeError):
    """Tasks wake each other for ever, and time stands still."""


MOST_TURNS = 20_000
"""So many turns of the loop at one moment are taken for a livelock: schedules with all faults need some hundreds."""


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting, moves the loop's clock on by as much as it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._turns = 0
        self._looks = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits for something that nobody will bring")
        self._turns += 1
        if timeout > 0:
            self.now_s += timeout
            self._turns = 0
        elif self._turns > MOST_TURNS:
            self._turns = 0  # what ends now needs some turns
            raise Livelock(f"{MOST_TURNS:,} turns of the loop, and it is still {self.now_s:.3f} s")
        self._looks += 1
        # Nothing here takes real time: only a signal can come from outside, and may wait for a few turns.
        return super().select(0) if self._looks % 64 == 0 else []


class VirtualLoop(asyncio.SelectorEventLoop):
    """``time()`` starts at 0 and moves only while nothing can run."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._jumping.now_s


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

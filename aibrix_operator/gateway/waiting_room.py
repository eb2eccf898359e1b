"""Where requests wait until their model is another than it was: its engine may serve by then.

Used within one event loop. Whoever changes the view says so with ``model_changed``.
"""

from __future__ import annotations

import asyncio
from typing import Final

MOST_PER_MODEL: Final = 256
MOST_WHOLE: Final = 4096
OF_TIMEOUT: Final = 0.9
"""Of the time after which Envoy gives a request up: who has waited so long is told by us, and why."""


class WaitingRoom:
    """So many requests may wait for one model, so many in all, and each for so long: what waits holds its prompt."""

    def __init__(self, timeout_s: float, *, most_per_model: int = MOST_PER_MODEL, most_whole: int = MOST_WHOLE) -> None:
        """``timeout_s``: after which Envoy gives a request up."""
        self.longest_s = timeout_s * OF_TIMEOUT
        self._most_per_model = most_per_model
        self._most_whole = most_whole
        self._seats: dict[str, set[Seat]] = {}
        self._whole = 0

    def __len__(self) -> int:
        return self._whole

    def waiting(self, model: str) -> int:
        """Requests that have a seat for it."""
        return len(self._seats.get(model, ()))

    def enter(self, model: str) -> Seat | None:
        """A seat, to be left in any case. None: too many wait."""
        seats = self._seats.setdefault(model, set())
        if len(seats) >= self._most_per_model or self._whole >= self._most_whole:
            if not seats:
                del self._seats[model]
            return None
        seat = Seat(self, model)
        seats.add(seat)
        self._whole += 1
        return seat

    def model_changed(self, model: str) -> None:
        """Those who wait for it look again."""
        for seat in self._seats.get(model, ()):
            seat.rouse(has_changed=True)

    def _left(self, seat: Seat) -> None:
        seats = self._seats.get(seat.model)
        if seats is None or seat not in seats:
            return
        seats.discard(seat)
        self._whole -= 1
        if not seats:
            del self._seats[seat.model]


class Seat:
    """One waiting request."""

    __slots__ = ("_change", "_room", "_timer", "model")

    def __init__(self, room: WaitingRoom, model: str) -> None:
        self.model = model
        self._room = room
        self._change: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def change(self, within_s: float) -> asyncio.Future[bool]:
        """Whether the model changes within so long. It counts from this call, not from when it is awaited."""
        self._forget()
        loop = asyncio.get_running_loop()
        self._change = loop.create_future()
        self._timer = loop.call_later(max(within_s, 0.0), self._time_is_over)
        return self._change

    def rouse(self, *, has_changed: bool) -> None:
        """End the wait for a change, if there is one."""
        if self._change is not None and not self._change.done():
            self._change.set_result(has_changed)

    def leave(self) -> None:
        """Once or more often."""
        self._forget()
        self._room._left(self)

    def _time_is_over(self) -> None:
        self.rouse(has_changed=False)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._change = None

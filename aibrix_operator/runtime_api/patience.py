"""Which sidecars are left alone for a while because they did not answer in time. Pure: time is handed in."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_WINDOW_S = 10.0
LONGEST_WINDOW_S = 60.0
FORGET_AFTER_S = 3_600.0
"""Long after its window ended, a sidecar that nobody called again (its Pod is gone) is forgotten."""


@dataclass(frozen=True, slots=True)
class Window:
    """Calls are held back from ``opened_s`` until ``until_s``."""

    opened_s: float
    until_s: float

    @property
    def length_s(self) -> float:
        """How long this window is."""
        return self.until_s - self.opened_s


class Patience:
    """Windows by address. Lost with the process: rebuilt by the next timeouts."""

    def __init__(self) -> None:
        self._windows: dict[str, Window] = {}
        self._heard_s: dict[str, float] = {}
        """Address → when it last answered, of those that were silent before."""

    def is_left_alone(self, address: str, now_s: float) -> bool:
        """Whether calls to ``address`` are held back at ``now_s``."""
        window = self._windows.get(address)
        return window is not None and now_s < window.until_s

    def timed_out(self, address: str, sent_at_s: float, now_s: float) -> None:
        """Open a window: 10 s, and twice the last one for every further timeout in a row, at most 60 s.

        A call that was already under way when the present window opened tells of the same silence, so it does not
        make the window longer. One that was sent before the last answer came tells of a silence that is over.
        """
        if sent_at_s < self._heard_s.get(address, sent_at_s):
            return
        last = self._windows.get(address)
        if last is not None and sent_at_s < last.opened_s:
            return
        length_s = FIRST_WINDOW_S if last is None else min(2 * last.length_s, LONGEST_WINDOW_S)
        self._windows = {key: w for key, w in self._windows.items() if now_s < w.until_s + FORGET_AFTER_S}
        self._windows[address] = Window(now_s, now_s + length_s)

    def heard_from(self, address: str, now_s: float) -> None:
        """Any answer, also an error or a refused connection, ends the window and the run of timeouts."""
        if self._windows.pop(address, None) is not None or address in self._heard_s:
            self._heard_s = {key: s for key, s in self._heard_s.items() if now_s < s + FORGET_AFTER_S}
            self._heard_s[address] = now_s

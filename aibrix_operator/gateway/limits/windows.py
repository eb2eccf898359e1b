"""Fixed windows of time, which rates are counted in. Pure.

Every gateway counts in the same windows, because they start at multiples of their length since the epoch.
"""

from __future__ import annotations

import math
from typing import Final

USER_WINDOW_S: Final = 60
"""RPM and TPM."""


def index_of(now_s: float, window_s: int) -> int:
    """Which window ``now_s`` is in, counted from the epoch."""
    return int(now_s // window_s)


def left_s(now_s: float, window_s: int) -> int:
    """Whole seconds until the next window, at least 1: a Retry-After."""
    return max(1, math.ceil((index_of(now_s, window_s) + 1) * window_s - now_s))


class Counts:
    """One window's counts by name. The next window starts empty; what is said of an earlier one is not heard."""

    __slots__ = ("_by_name", "_index")

    def __init__(self) -> None:
        self._index = -1
        self._by_name: dict[str, int] = {}

    def count(self, name: str, index: int) -> int:
        """In window ``index``."""
        return self._by_name.get(name, 0) if index == self._index else 0

    def add(self, name: str, index: int, amount: int) -> int:
        """Count in window ``index``, which becomes the one that is kept. Returns what it comes to."""
        if index != self._index:
            self._index = index
            self._by_name.clear()
        total = self._by_name.get(name, 0) + amount
        self._by_name[name] = total
        return total

    def take_back(self, name: str, index: int, amount: int) -> None:
        """Undo, in the window that was charged and nowhere else; never below 0."""
        if index == self._index and name in self._by_name:
            self._by_name[name] = max(0, self._by_name[name] - amount)

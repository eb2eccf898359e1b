"""The one exponential backoff: between tries of a key, of a watch, of an Event."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from ``initial_s`` to ``max_s``. ``jitter`` 0.5 makes a delay between half and one and a half of it."""

    initial_s: float
    max_s: float
    jitter: float = 0.0

    def delay_s(self, failures: int) -> float:
        """The wait after the ``failures``-th failure in a row, which counts from 1."""
        # 2**64 times any start is past any maximum, and a float power of more would overflow one day.
        delay_s = min(self.initial_s * 2.0 ** min(failures - 1, 64), self.max_s)
        return delay_s * (1 + self.jitter * random.uniform(-1, 1)) if self.jitter else delay_s

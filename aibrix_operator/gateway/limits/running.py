"""What other gateways have running, so that all of them send a request where the fewest run.

Each gateway tells its own counts and hears the others' in one call, ``EVERY_S`` apart, however many requests there are.
The same call is its sign of life, and tells how far Redis' clock is ahead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from aibrix_operator.gateway.limits import keys, scripts
from aibrix_operator.gateway.limits.redis import RedisLimiter
from aibrix_operator.gateway.limits.store import AwayError, Store
from aibrix_operator.gateway.loads import Loads

EVERY_S: Final = 0.2
CLOCKS_DIFFER_S: Final = 0.05
"""Less than this between two clocks is not told from the time that a call takes."""


class RunningCounts:
    """Keeps ``Loads`` told of the other gateways."""

    def __init__(
        self,
        store: Store,
        loads: Loads,
        limiter: RedisLimiter,
        gateway: str,
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``gateway``: the field that ``limiter`` has too."""
        self.others = 0
        """Gateways that were alive in the last exchange, beside this one."""
        self._store = store
        self._loads = loads
        self._limiter = limiter
        self._gateway = gateway
        self._every_s = every_s
        self._clock = clock
        self._said: bytes | None = None
        self._heard: dict[bytes, bytes] = {}
        self._heard_s = clock()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._store.is_up:
                await self.exchange()
            if self._clock() - self._heard_s > scripts.LIVE_S:
                self._hear([])  # Counts of long ago are worse than none.
            await asyncio.sleep(self._every_s)

    async def exchange(self) -> None:
        """One round. A failure closes the store, and is no more than that."""
        counts = orjson.dumps(self._loads.own())
        say = b"" if counts == self._said else counts
        before_s = self._clock()
        try:
            new, is_missing, time_s, others = await self._store.beside(
                *(scripts.EXCHANGE, (keys.GATEWAYS, keys.RUNNING)),
                *(self._gateway, scripts.LIVE_S, scripts.KEEP_S, say),
            )
        except AwayError:
            self._said = None
            return
        now_s = self._clock()
        self._heard_s = now_s
        ahead_s = float(time_s) - (before_s + now_s) / 2
        self._limiter.clock_ahead_s = ahead_s if abs(ahead_s) >= CLOCKS_DIFFER_S else 0.0
        # Redis may have restarted, empty: then it has to be told all again.
        self._said = None if is_missing else counts
        if new:
            self._limiter.tell_all()
        self._hear(others)

    def _hear(self, others: Sequence[Any]) -> None:
        heard = dict(zip(others[::2], others[1::2], strict=True))
        if heard == self._heard:
            return
        self._heard = heard
        self.others = len(heard)
        sums: dict[str, int] = {}
        for counts in heard.values():
            for key, count in orjson.loads(counts).items():
                sums[key] = sums.get(key, 0) + count
        self._loads.set_peers(sums)

"""Scrapes engines' metrics, of those alone that a strategy looks at.

Which strategies read metrics is not known beforehand: a client may name any, and there are custom ones. So the view's
map of metrics notes which addresses it is asked for: a scrape begins within a period of the first question, and
ends when nobody has asked for ``UNASKED_FOR_S``.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry, Counter, Gauge

from aibrix_operator.cluster.backoff import Backoff
from aibrix_operator.gateway import engine_metrics
from aibrix_operator.gateway.view import EngineMetrics

log = logging.getLogger(__name__)

UNASKED_FOR_S = 300.0
FRESH_PERIODS = 3
FRESH_S = 5.0
"""What is older than this, and than three periods, is thrown away."""
_WITHIN = aiohttp.ClientTimeout(total=2.0)
_PAGE_LIMIT_BYTES = 4 << 20
_AT_ONCE = 32
_BACKOFF = Backoff(initial_s=1.0, max_s=30.0, jitter=0.2)
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}


class Readings(dict[str, EngineMetrics]):
    """``View.metrics``: address → metrics. Asking for an address is what makes it scraped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._asked: dict[str, float] = {}

    # Strategies ask by either; what is missing is noted just as well.
    def get(self, address: str, default: Any = None) -> Any:
        self._asked[address] = self._clock()
        return super().get(address, default)

    def __getitem__(self, address: str) -> EngineMetrics:
        self._asked[address] = self._clock()
        return super().__getitem__(address)

    def __contains__(self, address: object) -> bool:
        if isinstance(address, str):
            self._asked[address] = self._clock()
        return super().__contains__(address)

    def wanted(self) -> set[str]:
        """Addresses that were asked for lately. The others are forgotten, with their metrics."""
        since = self._clock() - UNASKED_FOR_S
        for address in [address for address, at_s in self._asked.items() if at_s < since]:
            del self._asked[address]
            self.pop(address, None)
        return set(self._asked)

    def drop(self, address: str) -> None:
        """There is no such endpoint any more."""
        self._asked.pop(address, None)
        self.pop(address, None)


class Scraper:
    """Keeps ``readings`` fresh until cancelled: each address once a period, ``_AT_ONCE`` of them at a time.

    Where all cannot be read within a period, all are read less often: a scrape never queues behind itself.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        readings: Readings,
        registry: CollectorRegistry,
        *,
        period_s: float = 1.0,
        look_s: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._readings = readings
        self.looks = 0
        """How often it has looked for what is due."""
        self._period_s = period_s
        self._look_s = look_s
        self._clock = clock
        self._wall = wall
        self._known: dict[str, _Target] = {}
        self._due: list[tuple[float, str]] = []
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._failed = Counter(
            "aibrix_gateway_scrape_failures", "Engine metrics that could not be read.", registry=registry
        )
        self._scraped = Gauge("aibrix_gateway_scraped_engines", "Engines whose metrics are read.", registry=registry)

    async def run(self) -> None:
        """Scrape until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._look_around()
                while self._due and self._due[0][0] <= self._clock():
                    due_s, address = heapq.heappop(self._due)
                    target = self._known.get(address)
                    if target is not None and target.due_s == due_s:
                        await self._slots.acquire()
                        group.create_task(self._scrape(address, target))
                self.looks += 1
                await asyncio.sleep(self._look_s)

    def _look_around(self) -> None:
        """Take up what is newly asked for, and let go of the rest."""
        wanted = self._readings.wanted()
        for address in [address for address in self._known if address not in wanted]:
            del self._known[address]
        for address in wanted - self._known.keys():
            target = self._known[address] = _Target()
            self._put_due(address, target, self._clock())
        oldest_s = self._wall() - max(FRESH_S, FRESH_PERIODS * self._period_s)
        for address in [address for address, metrics in self._readings.items() if metrics.at_s < oldest_s]:
            self._readings.pop(address)
        self._scraped.set(len(self._known))

    def _put_due(self, address: str, target: _Target, due_s: float) -> None:
        target.due_s = due_s
        heapq.heappush(self._due, (due_s, address))

    async def _scrape(self, address: str, target: _Target) -> None:
        began_s = self._clock()
        try:
            page = await self._page(address)
            target.reading = engine_metrics.read(page, self._wall(), target.reading)
            target.failures = 0
            if self._known.get(address) is target:
                self._readings[address] = target.reading.metrics
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            target.failures += 1
            self._failed.inc()
            log.debug("metrics of %s: %s", address, str(error) or type(error).__name__)
        finally:
            self._slots.release()
            if self._known.get(address) is target:
                wait_s = _BACKOFF.delay_s(target.failures) if target.failures else self._period_s
                self._put_due(address, target, max(began_s + wait_s, self._clock()))

    async def _page(self, address: str) -> bytes:
        url = f"http://{address}/metrics"
        async with self._session.get(url, headers=_HEADERS, timeout=_WITHIN, allow_redirects=False) as answer:
            if answer.status != 200:
                raise ValueError(f"HTTP {answer.status}")
            page = await answer.content.read(_PAGE_LIMIT_BYTES)
            while not answer.content.at_eof() and len(page) < _PAGE_LIMIT_BYTES:
                page += await answer.content.read(_PAGE_LIMIT_BYTES - len(page))
            return page


class _Target:
    """One engine that is scraped."""

    def __init__(self) -> None:
        self.reading: engine_metrics.Reading | None = None
        self.failures = 0
        self.due_s = 0.0
        """Entries of the queue with another time are old."""

"""Gateways that share a real Redis, as far as limits go: each with a limiter, loads and an exchange of its own."""

import asyncio
import contextlib
import itertools
import time

import redis.asyncio

from aibrix_operator.gateway.limits.limiter import Denied
from aibrix_operator.gateway.limits.redis import RedisLimiter
from aibrix_operator.gateway.limits.running import RunningCounts
from aibrix_operator.gateway.limits.store import Store
from aibrix_operator.gateway.limits.users import Policy
from aibrix_operator.gateway.loads import Loads

_serial = itertools.count(1)
PATIENT_S = 5.0
"""Answer time that a busy machine does not use up, for tests that are not about slowness."""


class Gateway:
    """One replica's limits."""

    def __init__(self, url, policy=Policy.LOCAL, within_s=PATIENT_S):
        self.field = f"gw-{next(_serial)}:{time.time_ns()}"
        self.store = Store(url, within_s=within_s)
        self.limiter = RedisLimiter(self.store, policy, self.field)
        self.loads = Loads()
        self.running = RunningCounts(self.store, self.loads, self.limiter, self.field, every_s=0.02)
        self._running = None

    async def start(self):
        await self.store.start()
        self._running = asyncio.create_task(self.running.run())
        return self

    async def die(self):
        """As kill -9 leaves it: nothing is given back."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self.store.stop()

    async def admit(self, charge):
        answer = self.limiter.admit(charge)
        return await answer if hasattr(answer, "__await__") else answer

    async def admit_all(self, charges):
        """At once."""
        return await asyncio.gather(*(self.admit(charge) for charge in charges))


@contextlib.asynccontextmanager
async def gateways(url, count=1, **options):
    """Started, and stopped in the end."""
    started = [await Gateway(url, **options).start() for _ in range(count)]
    try:
        yield started
    finally:
        for gateway in started:
            await gateway.die()


@contextlib.asynccontextmanager
async def client(url):
    """To look into Redis with."""
    asking = redis.asyncio.Redis.from_url(url, decode_responses=True)
    try:
        yield asking
    finally:
        await asking.aclose()


def verdicts(answers):
    return [answer.limit if isinstance(answer, Denied) else "granted" for answer in answers]


async def until(true, within_s=10.0):
    """Poll a real process, a plain or an awaited condition, and return what it gave."""
    deadline_s = time.monotonic() + within_s
    while True:
        found = true()
        if hasattr(found, "__await__"):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.001)


async def settled(gateway):
    """All that ended has been told to Redis."""
    limiter = gateway.limiter
    await until(lambda: not limiter._has_work() and limiter._call is None and not limiter._is_kicked)

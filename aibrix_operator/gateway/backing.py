"""Where a replica's counts and records live: in its memory, or in Redis for all replicas."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry

from aibrix_operator.gateway.limits.limiter import Limiter
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.limits.redis import RedisLimiter
from aibrix_operator.gateway.limits.running import RunningCounts
from aibrix_operator.gateway.limits.store import Store
from aibrix_operator.gateway.limits.store_metrics import StoreFigures
from aibrix_operator.gateway.limits.user_file import FileUsers
from aibrix_operator.gateway.limits.user_records import RedisUsers
from aibrix_operator.gateway.limits.users import Policy, Users, UserStore
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.options import Options

log = logging.getLogger(__name__)

FIRST_ANSWER_S: Final = 10.0
"""How long a replica that starts waits for Redis before it is ready without. Most often both start at once."""


class _Shared:
    """What a replica shares with the others through Redis."""

    def __init__(self, url: str, options: Options, loads: Loads, clock: Callable[[], float]) -> None:
        # The time of the start tells this process from an earlier one of the name, whose slots are free.
        gateway = f"{options.name}:{time.time_ns()}"
        self.store = Store(url, clock=clock)
        self.limiter = RedisLimiter(self.store, options.redis_away, gateway)
        self.running = RunningCounts(self.store, loads, self.limiter, gateway, clock=clock)
        self._exchange: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Never fails: Redis may be absent."""
        await self.store.start()
        self._exchange = asyncio.create_task(self.running.run(), name="running counts")

    async def close(self) -> None:
        """Give back what is held, if Redis can be told."""
        if self._exchange is not None:
            self._exchange.cancel()
            await asyncio.gather(self._exchange, return_exceptions=True)
        await self.limiter.leave()
        await self.store.stop()


class Backing:
    """Limits and users as the options ask for them. OSError or ``BadRecordError`` for a file that can't be used."""

    def __init__(
        self, options: Options, registry: CollectorRegistry, loads: Loads, *, clock: Callable[[], float] = time.time
    ) -> None:
        """``clock``: Unix seconds, those that requests are charged by."""
        self._options = options
        self._clock = clock
        self._began_s = clock()
        self._file = FileUsers(options.users_file) if options.users_file is not None else None
        self._shared: _Shared | None = None
        self.limiter: Limiter = MemoryLimiter()
        store: UserStore | None = self._file
        if options.redis_url is not None:
            self._shared = shared = _Shared(options.redis_url, options, loads, clock)
            self.limiter = shared.limiter
            registry.register(StoreFigures(shared.store.standing, lambda: shared.running.others, options.redis_away))
            if store is None:
                store = RedisUsers(shared.store)
        self.users = Users(store, options.users_mode, options.redis_away)

    async def start(self) -> None:
        """Begin; says what is kept where."""
        if self._shared is not None:
            await self._shared.start()
            return
        log.warning(
            "no Redis is configured: limits, counts and sessions are this replica's own, in memory; "
            "several replicas would each grant all of a limit"
        )

    async def close(self) -> None:
        """Let go."""
        if self._shared is not None:
            await self._shared.close()

    def problems(self) -> list[str]:
        """What keeps this replica from being ready: a Redis that has never answered, for a while or as a policy."""
        if self._shared is None or self._shared.store.was_up:
            return []
        if self._options.redis_away is not Policy.CLOSED and self._clock() - self._began_s >= FIRST_ANSWER_S:
            return []
        return ["Redis has not answered yet"]

    def status(self) -> object:
        """For the status page."""
        users = {"mode": str(self._options.users_mode), "file": str(self._options.users_file or "") or None}
        if self._file is not None:
            users["problem"] = self._file.error
        if self._shared is None:
            return {"store": "memory", "users": users}
        standing = self._shared.store.standing()
        return {
            "store": "redis",
            "users": users,
            "redis": {
                "up": standing.is_up,
                "for_s": round(self._clock() - standing.since_s, 3),
                "outages": standing.outages,
                "last_error": standing.error,
                "while_away": str(self._options.redis_away),
                "other_gateways": self._shared.running.others,
            },
        }

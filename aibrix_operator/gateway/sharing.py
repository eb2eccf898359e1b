"""What strategies learn of prompts and sessions: this replica's own, or shared by all through Redis.

The prefix table goes through ``statesync``, pins through one script each. All of it may be lost: requests are then
routed a little worse for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from aibrix_operator.gateway.prefix_blocks import PrefixSettings
from aibrix_operator.gateway.prefix_share import PrefixShare
from aibrix_operator.gateway.prefix_table import PrefixTable
from aibrix_operator.gateway.sessions import RedisPins, Sessions
from aibrix_operator.gateway.view import Model
from aibrix_operator.statesync.options import StatesyncSettings
from aibrix_operator.statesync.sync import StateSync, state_sync

SWEEP_S: Final = 1.0
STOP_WITHIN_S: Final = 2.0
_CONNECT_WITHIN_S: Final = 2.0
_ENABLED: Final = "AIBRIX_STATESYNC_ENABLED"


class Sharing:
    """Prefix table and session pins of one replica. ``StatesyncNeedsRedis`` where it is asked for without Redis."""

    def __init__(
        self,
        redis_url: str | None,
        models: Mapping[str, Model],
        registry: CollectorRegistry,
        environ: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        """``models``: the view's. ``clock``: Unix seconds.

        Where ``AIBRIX_STATESYNC_ENABLED`` says nothing, state is shared if there is a Redis.
        """
        settings = StatesyncSettings() if _ENABLED in environ else StatesyncSettings(enabled=redis_url is not None)
        self._redis = _client(redis_url) if redis_url is not None else None
        self._clock = clock
        self._sync: StateSync | None = state_sync(settings, self._redis, registry)
        self.prefixes = PrefixTable(
            PrefixSettings.from_env(environ, is_shared=self._sync is not None, random=random.SystemRandom())
        )
        self.pins = Sessions(RedisPins(self._redis) if self._redis is not None else None)
        self._share = PrefixShare(self.prefixes, models, clock) if self._sync is not None else None
        if self._sync is not None and self._share is not None:
            self._sync.register(self._share)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin. Redis may be absent."""
        if self._sync is not None:
            self._sync.start()
        self._run(self.pins.run(), "session pins")
        self._run(self._sweep(), "prefix table")

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._sync is not None:
            with contextlib.suppress(TimeoutError):  # a cycle that Redis does not answer is nobody's loss
                async with asyncio.timeout(STOP_WITHIN_S):
                    await self._sync.stop()
        if self._redis is not None:
            await self._redis.aclose()

    def pod_gone(self, uid: str) -> None:
        """What its engines had in their caches went with it."""
        self.prefixes.forget(uid)

    def engine_ended(self, model: str, incarnation: str) -> None:
        """A sleeping engine keeps nothing of its cache, at any level of sleep."""
        self.prefixes.forget_engine(model, incarnation, self._clock())

    def status(self) -> object:
        """For the status page."""
        told = {"shared": self._sync is not None, "prefix_blocks": len(self.prefixes), "session_pins": len(self.pins)}
        return told | ({"blocks_not_told_yet": self._share.dirty_count} if self._share is not None else {})

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.prefixes.sweep(self._clock())


def _client(url: str) -> Redis:
    """Retries are the callers': each knows how long it may wait."""
    return Redis.from_url(
        url, retry=Retry(NoBackoff(), 0), socket_connect_timeout=_CONNECT_WITHIN_S, protocol=2, decode_responses=False
    )

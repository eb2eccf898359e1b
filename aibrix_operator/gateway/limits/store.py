"""The Redis that gateways share, and whether it can be asked now.

A call that fails or takes too long closes the store: from then on callers are told at once, and none waits, until a
probe has been answered. It may be absent at the start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from aibrix_operator.gateway.limits.scripts import Script

LOG = logging.getLogger(__name__)
ANSWER_WITHIN_S: Final = 0.1
_STEPS: Final = 4
PROBE_FIRST_S: Final = 0.05
PROBE_MOST_S: Final = 1.0


class AwayError(Exception):
    """Redis did not answer, or not in time. What was asked may have happened all the same."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a status page and the metrics tell of the store."""

    is_up: bool
    since_s: float
    """Unix seconds of the last change."""
    outages: int
    """How often it was lost; to be absent at the start is one."""
    error: str | None
    """The last, also when it is over."""


class _Patience:
    """Raises TimeoutError after ``within_s`` in which the loop ran.

    Time in which our own process stood still (throttled, or at work on something long) counts for one step of four: the
    answer may have come meanwhile, and Redis is not away because we are slow.
    """

    def __init__(self, within_s: float) -> None:
        self._step_s = within_s / _STEPS
        self._steps_left = _STEPS
        self._timeout = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._next = self._loop.call_later(self._step_s, self._step)

    async def __aexit__(self, *raised: Any) -> None:
        self._next.cancel()
        await self._timeout.__aexit__(*raised)

    def _step(self) -> None:
        self._steps_left -= 1
        if self._steps_left:
            self._next = self._loop.call_later(self._step_s, self._step)
        else:
            self._timeout.reschedule(self._loop.time())


class Connection:
    """One connection to Redis, and the time that it is given. Calls go one after the other."""

    def __init__(self, url: str, within_s: float) -> None:
        self._within_s = within_s
        # A retry of redis-py's own would double the time that a request waits for a server that is gone. Its time-outs
        # are off, ours is around them: they use asyncio.wait_for, which in Python 3.11 may swallow a cancellation.
        self._client: Redis = Redis.from_url(
            url,
            single_connection_client=True,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=None,
            protocol=2,
            decode_responses=False,
        )

    async def command(self, *words: str | bytes | int) -> Any:
        """One command. Raises ``AwayError``."""
        try:
            async with _Patience(self._within_s):
                return await self._call(*words)
        except (RedisError, OSError, TimeoutError) as error:
            raise AwayError(_text(error)) from error

    async def run(self, script: Script, keys: Sequence[str], *arguments: str | bytes | int) -> Any:
        """By its name, and once by its text where Redis does not know it (any more). Raises ``AwayError``."""
        try:
            async with _Patience(self._within_s):
                try:
                    return await self._call("EVALSHA", script.sha, len(keys), *keys, *arguments)
                except NoScriptError:
                    return await self._call("EVAL", script.text, len(keys), *keys, *arguments)
        except (RedisError, OSError, TimeoutError) as error:
            raise AwayError(_text(error)) from error

    async def _call(self, *words: str | bytes | int) -> Any:
        return await self._client.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py 8.1 has no types here

    async def close(self) -> None:
        """Also one that hangs."""
        await self._client.aclose()


class Store:
    """Two connections, so that what is read in the background holds no request up."""

    def __init__(self, url: str, *, within_s: float = ANSWER_WITHIN_S, clock: Callable[[], float] = time.time) -> None:
        self._asked = Connection(url, within_s)
        self._beside = Connection(url, within_s)
        self._clock = clock
        self._lost = asyncio.Event()
        self._lost.set()
        self._back: list[Callable[[], None]] = []
        self._standing = Standing(is_up=False, since_s=clock(), outages=0, error=None)
        self.was_up = False
        """It has answered once."""
        self._watching: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """Redis answered the last call."""
        return self._standing.is_up

    def standing(self) -> Standing:
        """As it is now."""
        return self._standing

    def when_back(self, call: Callable[[], None]) -> None:
        """``call`` is called each time that Redis can be asked again, at the start too."""
        self._back.append(call)

    async def start(self) -> None:
        """Try once to reach Redis, and go on trying in the background. Never fails."""
        await self._probe()
        self._watching = asyncio.create_task(self._watch(), name="limits-redis-probe")

    async def stop(self) -> None:
        """Let go of both connections."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
        await self._asked.close()
        await self._beside.close()

    async def ask(self, script: Script, keys: Sequence[str], *arguments: str | bytes | int) -> Any:
        """For a request that waits. Raises ``AwayError``, and closes the store with it."""
        try:
            return await self._asked.run(script, keys, *arguments)
        except AwayError as error:
            self._close(error)
            raise

    async def beside(self, script: Script, keys: Sequence[str], *arguments: str | bytes | int) -> Any:
        """As ``ask``, in the background."""
        try:
            return await self._beside.run(script, keys, *arguments)
        except AwayError as error:
            self._close(error)
            raise

    async def read(self, keys: Sequence[str]) -> list[bytes | None]:
        """Values of strings, in the order of ``keys``. Raises ``AwayError``."""
        try:
            found: list[bytes | None] = await self._beside.command("MGET", *keys)
        except AwayError as error:
            self._close(error)
            raise
        return found

    def _close(self, error: AwayError) -> None:
        before = self._standing
        if before.is_up or not before.outages:
            LOG.warning("Redis is away, limits follow the policy for that: %s", error)
            self._standing = Standing(False, self._clock(), before.outages + 1, str(error))
        else:
            self._standing = Standing(False, before.since_s, before.outages, str(error))
        self._lost.set()

    async def _probe(self) -> None:
        try:
            await self._asked.command("PING")
        except AwayError as error:
            self._close(error)
            return
        LOG.info("Redis answers")
        self._standing = Standing(True, self._clock(), self._standing.outages, self._standing.error)
        self.was_up = True
        self._lost.clear()
        for call in self._back:
            call()

    async def _watch(self) -> None:
        while True:
            await self._lost.wait()
            pause_s = PROBE_FIRST_S
            while not self.is_up:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PROBE_MOST_S)
                await self._probe()


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

"""A keyed work queue with client-go's semantics, on the event loop's own clock.

Duplicates merge, a key has one pass at a time, a wake during a pass runs one more afterwards, and a failed pass comes
back after a backoff of its key. Handlers only wake; passes read everything anew, so nothing but the key is queued.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.backoff import Backoff

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_BACKOFF = Backoff(initial_s=1, max_s=60)


class WorkQueue(Generic[K]):
    """Runs ``run_pass(key)`` for woken keys, at most ``workers`` at once, in the order of the wakes.

    Wakes before ``start`` wait for it. Everything happens in the loop that ``start`` was called in.
    """

    def __init__(
        self,
        name: str,
        run_pass: Callable[[K], Awaitable[None]],
        *,
        workers: int = 1,
        backoff: Backoff = _BACKOFF,
        rest: float = 0.0,
    ) -> None:
        """``name`` is for logs. An Unavailable with a Retry-After lengthens the backoff to it.

        After a pass of d seconds its key rests for ``rest`` * d, and wakes that come meanwhile merge. A pass over
        thousands of objects, each of whose finished steps wakes it again, then leaves time for the steps: with 1 it
        takes half of it at most. Short passes follow each other as fast as ever.
        """
        self._name = name
        self._run_pass = run_pass
        self._workers = workers
        self._backoff = backoff
        self._rest = rest
        self._waiting: collections.OrderedDict[K, None] = collections.OrderedDict()
        self._running: dict[K, asyncio.Task[None]] = {}
        self._resting: dict[K, asyncio.TimerHandle] = {}
        self._again: set[K] = set()  # woken during their pass or their rest
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._last_error: dict[K, str] = {}
        self._started = False
        self.passes = 0
        """Finished passes, failed ones among them."""
        self.failed_passes = 0

    @property
    def depth(self) -> int:
        """Keys that wait for a worker (not those that wait for a time)."""
        return len(self._waiting) + len(self._again)

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing runs; timers may be set."""
        return not self._waiting and not self._running and not self._again

    def start(self) -> None:
        self._started = True
        self._fill()

    def wake(self, key: K) -> None:
        """Run a pass for ``key`` as soon as a worker is free and its rest over, also when its backoff is not."""
        if key in self._running or key in self._resting:
            self._again.add(key)
        else:
            self._waiting[key] = None
            self._fill()

    def wake_after(self, key: K, seconds: float) -> None:
        """``wake`` after ``seconds``. Of several times for one key the earliest wins, and the others are forgotten."""
        if seconds <= 0:
            self.wake(key)
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._time_has_come, key)

    def forget(self, key: K) -> None:
        """The object is gone: drop its timer and its failures. A pass that waits or runs is left alone."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._failures.pop(key, None)
        self._last_error.pop(key, None)

    async def stop(self, grace_s: float) -> None:
        """Start no more passes and wait for those that run; cancel what is left after ``grace_s``."""
        self._started = False
        for timer in (*self._timers.values(), *self._resting.values()):
            timer.cancel()
        self._timers.clear()
        self._resting.clear()
        running = list(self._running.values())
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=grace_s)
        for task in late:
            task.cancel()
        if late:
            log.warning("%s: %d passes did not end within %.1f s and were cancelled", self._name, len(late), grace_s)
            await asyncio.wait(late)

    # --- the passes

    def _time_has_come(self, key: K) -> None:
        del self._timers[key]
        self.wake(key)

    def _fill(self) -> None:
        while self._started and self._waiting and len(self._running) < self._workers:
            key, _ = self._waiting.popitem(last=False)
            self._running[key] = asyncio.get_running_loop().create_task(
                self._pass(key), name=f"{self._name} pass of {key}"
            )

    async def _pass(self, key: K) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._run_pass(key)
        except Exception as error:
            self._failed(key, error)
        else:
            self._failures.pop(key, None)
            self._last_error.pop(key, None)
        finally:
            self.passes += 1
            del self._running[key]
            rest_s = self._rest * (loop.time() - began)
            if rest_s > 0 and self._started:
                self._resting[key] = loop.call_later(rest_s, self._rested, key)
            else:
                self._run_again(key)
            self._fill()

    def _rested(self, key: K) -> None:
        del self._resting[key]
        self._run_again(key)
        self._fill()

    def _run_again(self, key: K) -> None:
        if key in self._again:
            self._again.remove(key)
            self._waiting[key] = None

    def _failed(self, key: K, error: Exception) -> None:
        self.failed_passes += 1
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = self._backoff.delay_s(failures)
        if isinstance(error, errors.Unavailable) and error.retry_after_s is not None:
            delay_s = max(delay_s, error.retry_after_s)
        text = f"{type(error).__name__}: {error}"
        # A traceback once in a run of equal failures; the repeats say only that it goes on. What passes at the API
        # server is no fault of the pass.
        is_new = self._last_error.get(key) != text
        self._last_error[key] = text
        is_passing = isinstance(error, errors.ClusterError) and error.temporary
        level = logging.ERROR
        if is_passing:
            level = logging.DEBUG if isinstance(error, errors.Conflict) else logging.WARNING
        log.log(
            level,
            "%s: pass of %s failed (%d in a row), next in %.1f s: %s",
            *(self._name, key, failures, delay_s, text),
            exc_info=error if is_new and not is_passing else None,
        )
        if self._started:
            self.wake_after(key, delay_s)

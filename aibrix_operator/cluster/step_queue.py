"""Runs the steps of a plan: one at a time per key, keys side by side, a bounded number at once.

A key with a step in flight takes no other: the step is refused, not queued, because the next pass plans anew from what
the finished step has changed. So no plan is ever acted on that is older than the last step of its Pod.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Finished(Generic[K]):
    """How a step ended. ``error`` is None on success, CancelledError when the stop cut it short."""

    key: K
    value: Any
    error: BaseException | None
    began_at: float
    ended_at: float
    """Both on the event loop's clock, waiting for a free slot included."""


class StepQueue(Generic[K]):
    """At most ``concurrency`` steps run at once; the others wait for a slot and count as in flight meanwhile."""

    def __init__(self, name: str, *, concurrency: int) -> None:
        self._name = name
        self._slots = asyncio.Semaphore(concurrency)
        self._steps: dict[K, tuple[float, asyncio.Task[Any]]] = {}
        self._began: set[K] = set()  # have a slot
        self._stopping = False

    def submit(
        self, key: K, step: Callable[[], Awaitable[Any]], on_done: Callable[[Finished[K]], None] | None = None
    ) -> bool:
        """Start ``step`` for ``key``; False, and nothing happens, when one is in flight or the queue stops.

        ``on_done`` runs in the loop once the key is free again, so it may submit and wake. A step's own exceptions
        are its business and come as ``Finished.error``.
        """
        if self._stopping or key in self._steps:
            return False
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._run(key, step), name=f"{self._name} step of {key}")
        self._steps[key] = (loop.time(), task)
        # A callback and not a finally within the task: a task cancelled before its first turn runs none of its code.
        task.add_done_callback(functools.partial(self._ended, key, on_done))
        return True

    def in_flight(self, key: K) -> float | None:
        """When (loop time) the key's step was submitted; None when it has none."""
        step = self._steps.get(key)
        return None if step is None else step[0]

    def keys_in_flight(self) -> list[K]:
        return list(self._steps)

    async def stop(self, grace_s: float) -> None:
        """Take no more steps, drop those without a slot, wait ``grace_s`` for the others, then cancel them."""
        self._stopping = True
        for key, (_, task) in list(self._steps.items()):
            if key not in self._began:
                task.cancel()
        tasks = [task for _, task in self._steps.values()]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace_s)
        for task in late:
            task.cancel()
        if late:
            log.warning("%s: %d steps did not end within %.1f s and were cancelled", self._name, len(late), grace_s)
            await asyncio.wait(late)

    async def _run(self, key: K, step: Callable[[], Awaitable[Any]]) -> Any:
        async with self._slots:
            self._began.add(key)
            return await step()

    def _ended(self, key: K, on_done: Callable[[Finished[K]], None] | None, task: asyncio.Task[Any]) -> None:
        began_at, _ = self._steps.pop(key)
        self._began.discard(key)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if on_done is None:
            return
        value = None if error is not None else task.result()
        # An exception of on_done goes to the loop's exception handler, as every callback's.
        on_done(Finished(key, value, error, began_at, task.get_loop().time()))

"""The loop of one replica: in each cycle it pulls every registered state, then pushes every one.

Pull comes first, so that a peer's newer value is merged before ours is written. One namespace that fails makes the
cycle a failed one and changes nothing for the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from aibrix_operator.statesync import intervals, keys
from aibrix_operator.statesync.entry import Entry
from aibrix_operator.statesync.metrics import StatesyncMetrics
from aibrix_operator.statesync.options import Options, StatesyncSettings
from aibrix_operator.statesync.pull import Tools, pull
from aibrix_operator.statesync.push import push, settle_deletions
from aibrix_operator.statesync.store import FAILURES, RedisStore, Store, describe
from aibrix_operator.statesync.syncable import Syncable
from aibrix_operator.statesync.telling import Teller

logger = logging.getLogger(__name__)

T = TypeVar("T")
CUT_WAIT_S = 1.0
"""How long ``stop`` waits for a cycle that it has cut."""


class StatesyncNeedsRedis(RuntimeError):
    """State is to be shared, and no Redis is configured."""


class StateSync:
    """Register everything, then ``start``. Both and ``stop`` may be called in any order and any number of times."""

    def __init__(
        self,
        store: Store,
        options: Options,
        metrics: StatesyncMetrics,
        *,
        now_s: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """``now_s`` must run as the event loop's clock does. ``rng`` spreads replicas apart."""
        self._tools = Tools(store, options, metrics, now_s, rng or random.Random())
        self._entries: dict[str, Entry] = {}
        self._teller: Teller | None = None
        self._was_started = False
        self._loop: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._failures = 0

    def register(self, syncable: Syncable) -> bool:
        """Add a state to the loop. After the first start, and for a namespace that is unusable or taken, it is ignored
        with a warning, and False returned."""
        namespace = syncable.namespace
        if self._was_started:
            logger.warning("%s is not shared: it was registered after the start", namespace)
            return False
        try:
            keys.check_namespace(namespace)
        except keys.BadName as error:
            logger.warning("a state is not shared: %s", error)
            return False
        if namespace in self._entries:
            logger.warning("%s is not shared: the namespace is registered already", namespace)
            return False
        self._entries[namespace] = Entry(syncable, self._tools.options, self._tools.now_s(), self._tools.rng)
        return True

    def start(self) -> None:
        """Begin the loop on the running event loop. A second call does nothing; after ``stop`` it begins anew."""
        if self._loop is not None:
            return
        self._was_started = True
        self._stopping = asyncio.Event()
        self._failures = 0
        for entry in self._entries.values():
            entry.whole_due = "start"
        self._teller = Teller(uuid.uuid4().hex, self._entries.values(), self._tools)
        self._teller.start()
        self._loop = asyncio.create_task(self._run(self._stopping, self._teller), name="statesync")

    async def stop(self) -> None:
        """Returns when the cycle under way has ended, or was cut after the longest wait."""
        task, self._loop = self._loop, None
        if task is None:
            return
        self._stopping.set()
        _, running = await asyncio.wait([task], timeout=self._tools.options.stop_wait_s)
        if running:
            logger.warning("the cycle under way did not end within %g s, and is cut", self._tools.options.stop_wait_s)
            task.cancel()
            await asyncio.wait([task], timeout=CUT_WAIT_S)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _run(self, stopping: asyncio.Event, teller: Teller) -> None:
        options, rng = self._tools.options, self._tools.rng
        delay_s = intervals.first_delay_s(options.period_s, rng.random())
        try:
            while not await _is_set_within(stopping, delay_s):
                good = await self.cycle()
                self._failures = 0 if good else self._failures + 1
                delay_s = intervals.next_interval_s(options.period_s, self._failures, rng.random())
                self._tools.metrics.backoff_s.set(intervals.backoff_s(options.period_s, self._failures))
        finally:
            await teller.stop()

    async def cycle(self) -> bool:
        """Pull all, push all. True when nothing failed; what failed is logged and counted."""
        now_s, options = self._tools.now_s, self._tools.options
        deadline_s = now_s() + options.op_timeout_s
        steps_left = 2 * len(self._entries)
        failed = False
        if self._teller is not None:
            await self._teller.check()
        for phase, step in (("pull", self._pull), ("push", self._push)):
            began_s = now_s()
            for entry in self._entries.values():
                entry.warn_of_not_understood()
                budget_s = intervals.step_budget_s(deadline_s - now_s(), steps_left)
                failed = not await self._step(entry, phase, step, budget_s) or failed
                steps_left -= 1
            self._tools.metrics.duration_s.labels(phase).observe(now_s() - began_s)
        self._tools.metrics.cycles.labels("error" if failed else "success").inc()
        if not failed:
            self._tools.metrics.last_success_s.set_to_current_time()
        return not failed

    async def _step(self, entry: Entry, phase: str, step: Callable[[Entry], Awaitable[None]], budget_s: float) -> bool:
        try:
            async with asyncio.timeout(budget_s):
                await step(entry)
        except TimeoutError:
            logger.warning("the %s of %s took more than its %.1f s", phase, entry.namespace, budget_s)
        except FAILURES as error:
            logger.warning("the %s of %s failed: %s", phase, entry.namespace, describe(error))
        except Exception:  # a component's own fault: the other namespaces go on, and this one with the next cycle
            logger.exception("the %s of %s failed", phase, entry.namespace)
        else:
            return True
        self._tools.metrics.errors.labels(entry.namespace, phase).inc()
        return False

    async def _pull(self, entry: Entry) -> None:
        await pull(entry, self._tools)

    async def _push(self, entry: Entry) -> None:
        told = await self._teller.tell_all(entry) if self._teller is not None else 0
        refreshed = await push(entry, self._tools)
        if self._teller is not None:
            await self._teller.beat(entry, told, refreshed)
        else:
            entry.mended.clear()

    async def put(self, namespace: str, entity: str, data: bytes) -> bool:
        """Write one value through, and tell the peers. False when a deletion forbids it, whose TTL has not ended.

        Raises ``BadName`` for an unusable namespace, and what the store raises.
        """
        keys.check_namespace(namespace)
        entry = self._entries.get(namespace)
        if entry is not None and entry.holds_back(entity, data, self._tools.now_s()):
            return False
        ttl_s = entry.ttl_s if entry is not None else self._tools.options.record_ttl_s
        await self._bounded(self._tools.store.write(namespace, {entity: data}, ttl_s))
        if entry is not None:
            await self._bounded(settle_deletions(entry, {entity: data}, self._tools))
            await self._tell(entry, {entity: data})
        return True

    async def delete(self, namespace: str, entity: str) -> None:
        """Delete one entity, here too: by a tombstone when the state has them, so that no peer brings it back.

        Raises ``BadName`` for an unusable namespace, and what the store raises.
        """
        keys.check_namespace(namespace)
        entry = self._entries.get(namespace)
        if entry is None or entry.tombstones is None:
            await self._bounded(self._tools.store.delete(namespace, [entity]))
            return
        tombstone = entry.tombstones.make_tombstone(entity)
        # Remembered first: a push that runs meanwhile must not write the entity over its tombstone.
        entry.deletions.remember(entity, tombstone, self._tools.now_s() + entry.ttl_s)
        entry.tombstones.delete_local(entity, tombstone)
        await self._bounded(self._tools.store.write(namespace, {entity: tombstone}, entry.ttl_s))
        await self._tell(entry, {entity: tombstone})

    async def _tell(self, entry: Entry, values: dict[str, bytes]) -> None:
        if self._teller is not None and entry.announcing is not None:
            await self._teller.send(entry, values)

    async def _bounded(self, asking: Awaitable[T]) -> T:
        async with asyncio.timeout(self._tools.options.op_timeout_s):
            return await asking


def state_sync(
    settings: StatesyncSettings, client: Redis | RedisCluster | None, registry: CollectorRegistry
) -> StateSync | None:
    """The layer of a process; None when it is switched off. Raises ``StatesyncNeedsRedis``."""
    if not settings.enabled:
        return None
    if client is None:
        raise StatesyncNeedsRedis(
            "AIBRIX_STATESYNC_ENABLED is true and no Redis is configured: name one, or leave state sync off"
        )
    return StateSync(RedisStore(client, settings.options), settings.options, StatesyncMetrics(registry))


async def _is_set_within(event: asyncio.Event, delay_s: float) -> bool:
    try:
        async with asyncio.timeout(delay_s):
            await event.wait()
    except TimeoutError:
        return False
    return True

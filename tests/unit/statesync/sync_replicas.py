"""Replicas on one Redis, fake or real, under one clock that a test moves. Time in Redis moves with it: ``advance``
takes the same seconds off every key's TTL.

Times are a hundred times the product's, so that no real pause of a test comes near a TTL.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import fakeredis
from hypothesis import HealthCheck, settings
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from aibrix_operator.statesync.metrics import StatesyncMetrics
from aibrix_operator.statesync.options import Options
from aibrix_operator.statesync.store import RedisStore, Values
from aibrix_operator.statesync.sync import StateSync
from aibrix_operator.statesync.times import NewestTimes

PERIOD_S = 1_000.0
TTL_S = 12_000.0
LIFE_S = 120_000.0
SLOW = Options(period_s=PERIOD_S, record_ttl_s=TTL_S, repair_period_s=6_000.0, op_timeout_s=60.0, announce=False)
"""Without the fast path, so that nothing but cycles brings anything."""
TELLING = Options(period_s=PERIOD_S, record_ttl_s=TTL_S, repair_period_s=6_000.0, op_timeout_s=60.0)

few_examples = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Backend:
    """Where replicas meet. ``url`` of a real server; None: a fake one for each world."""

    url: str | None = None

    def clients(self) -> Callable[[], Redis]:
        url = self.url
        if url is None:
            server = fakeredis.FakeServer()
            return lambda: fakeredis.FakeAsyncRedis(server=server)
        return lambda: Redis.from_url(url)


class Clock:
    """Monotonic seconds and unix nanoseconds, moved by hand."""

    def __init__(self) -> None:
        self.s = 1_000_000.0

    def now_s(self) -> float:
        return self.s

    def now_ns(self) -> int:
        return int(self.s * 1e9)


Hook = Callable[[str, str, Any], Awaitable[None]]


async def nothing(op: str, namespace: str, what: Any) -> None:
    """No hook."""


class SpyStore:
    """A real store whose calls are recorded; ``before`` and ``after`` may change the world or raise."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self.calls: list[tuple[str, str, Any]] = []
        self.before: Hook = nothing
        self.after: Hook = nothing
        self.hears: Callable[[bytes], bool] = lambda payload: True
        self.published = 0
        self.heard = 0

    def ops(self, *names: str) -> list[tuple[str, str, Any]]:
        return [call for call in self.calls if call[0] in names]

    async def _do(self, op: str, namespace: str, what: Any, asking: Coroutine[Any, Any, Any]) -> Any:
        self.calls.append((op, namespace, what))
        try:
            await self.before(op, namespace, what)
        except BaseException:
            asking.close()
            raise
        answer = await asking
        await self.after(op, namespace, what)
        return answer

    async def entities(self, namespace: str) -> AsyncIterator[Values]:
        self.calls.append(("entities", namespace, None))
        await self.before("entities", namespace, None)
        async for batch in self._store.entities(namespace):
            await self.after("batch", namespace, batch)
            yield batch

    async def fetch(self, namespace: str, entities: Sequence[str]) -> Values:
        return await self._do("fetch", namespace, entities, self._store.fetch(namespace, entities))

    async def write(self, namespace: str, values: Mapping[str, bytes], ttl_s: float) -> None:
        await self._do("write", namespace, dict(values), self._store.write(namespace, values, ttl_s))

    async def delete(self, namespace: str, entities: Collection[str]) -> None:
        await self._do("delete", namespace, entities, self._store.delete(namespace, entities))

    async def delete_if(self, namespace: str, judged: Mapping[str, bytes]) -> int:
        return await self._do("delete_if", namespace, dict(judged), self._store.delete_if(namespace, judged))

    async def replace_if(self, namespace: str, entity: str, judged: bytes, data: bytes, ttl_s: float) -> bool:
        asking = self._store.replace_if(namespace, entity, judged, data, ttl_s)
        return await self._do("replace_if", namespace, (entity, data), asking)

    async def remaining_s(self, namespace: str, entities: Sequence[str]) -> list[float]:
        return await self._do("remaining_s", namespace, entities, self._store.remaining_s(namespace, entities))

    async def publish(self, namespace: str, payload: bytes) -> None:
        await self._do("publish", namespace, payload, self._store.publish(namespace, payload))
        self.published += 1

    async def news(self, namespaces: Sequence[str]) -> AsyncGenerator[tuple[str, bytes | None], None]:
        async for namespace, payload in self._store.news(namespaces):
            if payload is not None:
                self.heard += 1
            if payload is None or self.hears(payload):
                yield namespace, payload


@dataclass
class Replica:
    """One process: its states and its layer. ``cycle`` runs one cycle when the test wants it."""

    sync: StateSync
    store: SpyStore
    metrics: CollectorRegistry
    states: tuple[Any, ...]

    @property
    def times(self) -> NewestTimes:
        return self.states[0]

    async def cycle(self) -> bool:
        return await self.sync.cycle()

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.get_sample_value(f"aibrix_statesync_{name}", labels) or 0.0


@dataclass
class World:
    """Replicas that meet in one Redis."""

    make_client: Callable[[], Redis]
    redis: Redis
    clock: Clock = field(default_factory=Clock)
    replicas: list[Replica] = field(default_factory=list)
    clients: list[Redis] = field(default_factory=list)

    def times(self, namespace: str = "times", life_s: float = LIFE_S) -> NewestTimes:
        return NewestTimes(namespace, life_s, self.clock.now_ns)

    def replica(self, *states: Any, options: Options = SLOW) -> Replica:
        """Without states it has one of newest times."""
        client = self.make_client()
        self.clients.append(client)
        store, registry = SpyStore(RedisStore(client, options)), CollectorRegistry()
        rng = random.Random(len(self.replicas))
        sync = StateSync(store, options, StatesyncMetrics(registry), now_s=self.clock.now_s, rng=rng)
        replica = Replica(sync, store, registry, states or (self.times(),))
        for state in replica.states:
            sync.register(state)
        self.replicas.append(replica)
        return replica

    async def telling(self, *states: Any, options: Options = TELLING) -> Replica:
        """A replica whose fast path runs. Its loop sleeps for longer than any test, so that tests run its cycles."""
        replica = self.replica(*states, options=options)
        replica.sync.start()
        namespaces = [state.namespace for state in replica.states if hasattr(state, "announce_to")]
        await until(lambda: all(replica.count("listening", namespace=n) == 1 for n in namespaces))
        return replica

    async def all_heard(self) -> None:
        """Everything that was published so far has come to every listener."""
        expected = sum(r.store.published for r in self.replicas)
        await until(lambda: all(r.store.heard >= expected for r in self.replicas))

    async def round(self, order: Sequence[int] | None = None) -> None:
        """One cycle of each replica, one after another."""
        for at in order if order is not None else range(len(self.replicas)):
            await self.replicas[at].cycle()

    async def advance(self, seconds: float) -> None:
        self.clock.s += seconds
        keys = [key async for key in self.redis.scan_iter(count=1000)]
        async with self.redis.pipeline(transaction=False) as asking:
            for key in keys:
                asking.pttl(key)
            left_ms = await asking.execute()
        async with self.redis.pipeline(transaction=False) as moving:
            for key, ms in zip(keys, left_ms, strict=True):
                if ms > seconds * 1000:
                    moving.pexpire(key, int(ms - seconds * 1000))
                else:
                    moving.delete(key)
            await moving.execute()

    async def entities(self, namespace: str = "times", prefix: str = "aibrix") -> dict[str, bytes]:
        """What Redis holds of a namespace, by id."""
        head = f"{prefix}:{{{namespace}}}:e:".encode()
        found = [key async for key in self.redis.scan_iter(count=1000) if key.startswith(head)]
        values = await self.redis.mget(found) if found else []
        return {key[len(head) :].decode(errors="surrogateescape"): v for key, v in zip(found, values, strict=True)}

    async def ttls_s(self) -> list[float]:
        return [await self.redis.pttl(key) / 1000 async for key in self.redis.scan_iter(count=1000)]


@asynccontextmanager
async def world(backend: Backend) -> AsyncIterator[World]:
    """An empty Redis, closed with all that was opened on it."""
    make_client = backend.clients()
    redis = make_client()
    await redis.flushall()
    made = World(make_client, redis)
    try:
        yield made
    finally:
        for replica in made.replicas:
            await replica.sync.stop()
        for client in [*made.clients, redis]:
            await client.aclose()


def play(backend: Backend, story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """Run one story to its end, on an event loop of its own."""

    async def run() -> None:
        async with world(backend) as made:
            await story(made)

    asyncio.run(run())


async def until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    """Poll until ``holds``."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not come to hold in time"
        await asyncio.sleep(0.001)

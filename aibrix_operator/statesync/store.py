"""The only file that speaks to Redis. Errors of the client pass through: the caller counts them and tries again later.

Every key is written with a TTL. Scripts are used where a value may only be replaced while it is still the one that was
judged: another replica may have written a newer one since.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, cast

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from aibrix_operator.statesync import keys
from aibrix_operator.statesync.options import Options

FAILURES = (RedisError, OSError, TimeoutError)
"""What Redis being away, slow or unhappy looks like."""
AWAY = (RedisConnectionError, RedisTimeoutError, OSError, TimeoutError)
"""Those of them after which the next question would fail as well."""

DELETE_IF = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
REPLACE_IF = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then"
    " redis.call('psetex', KEYS[1], ARGV[3], ARGV[2]) return 1 end return 0"
)

Values = list[tuple[str, bytes | None]]


def describe(error: BaseException) -> str:
    """For logs: without the command that the client quotes, whose key and value may be a client's own."""
    return f"{type(error).__name__} {str(error).rpartition('caused error: ')[2]}"


class Store(Protocol):
    """What the layer needs of Redis, for one prefix."""

    def entities(self, namespace: str) -> AsyncIterator[Values]:
        """All entities of the namespace, a batch at a time; None for one that expired between two questions. One may
        come twice, and one that is written meanwhile may not come."""
        ...

    async def fetch(self, namespace: str, entities: Sequence[str]) -> Values: ...

    async def write(self, namespace: str, values: Mapping[str, bytes], ttl_s: float) -> None:
        """One pipeline. When it raises, any of them may or may not have been written."""
        ...

    async def delete(self, namespace: str, entities: Collection[str]) -> None: ...

    async def delete_if(self, namespace: str, judged: Mapping[str, bytes]) -> int:
        """Delete those that still hold the judged value; returns how many."""
        ...

    async def replace_if(self, namespace: str, entity: str, judged: bytes, data: bytes, ttl_s: float) -> bool: ...

    async def remaining_s(self, namespace: str, entities: Sequence[str]) -> list[float]:
        """Their TTLs; 0 for a key that is gone."""
        ...

    async def publish(self, namespace: str, payload: bytes) -> None: ...

    def news(self, namespaces: Sequence[str]) -> AsyncGenerator[tuple[str, bytes | None], None]:
        """What is published, as (namespace, payload). A payload of None: listening begins, or begins again after the
        connection was lost."""
        ...


def chunks(entities: Collection[str], size: int) -> list[list[str]]:
    """``entities`` in pieces of ``size``; the last may be smaller."""
    rest = iter(entities)
    return [piece for _ in range(0, len(entities), size) if (piece := list(islice(rest, size)))]


class RedisStore:
    """``Store`` on a Redis server or a Redis Cluster. The caller owns the client, with its TLS, keys and timeouts, and
    closes it. It must hand out bytes (``decode_responses`` off)."""

    def __init__(self, client: Redis | RedisCluster, options: Options) -> None:
        self._client = client
        self._prefix = keys.check_prefix(options.key_prefix)
        self._options = options

    def _key(self, namespace: str, entity: str) -> bytes:
        return keys.entity_key(self._prefix, namespace, entity)

    async def entities(self, namespace: str) -> AsyncIterator[Values]:
        """See ``Store``."""
        waiting: list[str] = []
        cursor: int | None = 0
        while cursor is not None:
            cursor, found = await self._scan(namespace, cursor)
            waiting += [e for key in found if (e := keys.cut_entity(self._prefix, namespace, key)) is not None]
            while len(waiting) >= self._options.mget_batch:
                batch, waiting = waiting[: self._options.mget_batch], waiting[self._options.mget_batch :]
                yield await self._mget(namespace, batch)
        if waiting:
            yield await self._mget(namespace, waiting)

    async def _scan(self, namespace: str, cursor: int) -> tuple[int | None, list[bytes]]:
        """One page and the next cursor, None after the last. On a cluster: of the one node that holds the namespace."""
        pattern, count = keys.scan_pattern(self._prefix, namespace), self._options.scan_count
        if isinstance(self._client, RedisCluster):
            await self._client.initialize()
            node = self._client.get_node_from_key(keys.entities_prefix(self._prefix, namespace))
            reply: Any = await self._client.scan(cursor, match=pattern, count=count, target_nodes=node)
            cursors, found = reply
            following = int(next(iter(cursors.values())))
        else:
            following, found = await self._client.scan(cursor, match=pattern, count=count)
        return following or None, list(found)

    async def _mget(self, namespace: str, entities: Sequence[str]) -> Values:
        values = await self._client.mget([self._key(namespace, e) for e in entities])
        return list(zip(entities, cast("list[bytes | None]", values), strict=True))

    async def fetch(self, namespace: str, entities: Sequence[str]) -> Values:
        """See ``Store``. At most a batch."""
        return await self._mget(namespace, entities)

    async def write(self, namespace: str, values: Mapping[str, bytes], ttl_s: float) -> None:
        """See ``Store``."""
        ttl_ms = max(int(ttl_s * 1000), 1)
        async with self._client.pipeline(transaction=False) as pipeline:
            for entity, data in values.items():
                pipeline.set(self._key(namespace, entity), data, px=ttl_ms)
            await pipeline.execute()

    async def delete(self, namespace: str, entities: Collection[str]) -> None:
        """See ``Store``."""
        async with self._client.pipeline(transaction=False) as pipeline:
            for entity in entities:
                pipeline.delete(self._key(namespace, entity))
            await pipeline.execute()

    async def delete_if(self, namespace: str, judged: Mapping[str, bytes]) -> int:
        """See ``Store``."""
        async with self._client.pipeline(transaction=False) as pipeline:
            for entity, data in judged.items():
                pipeline.eval(DELETE_IF, 1, self._key(namespace, entity), data)
            return sum(await pipeline.execute())

    async def replace_if(self, namespace: str, entity: str, judged: bytes, data: bytes, ttl_s: float) -> bool:
        """See ``Store``."""
        ttl_ms = max(int(ttl_s * 1000), 1)
        return bool(await self._client.eval(REPLACE_IF, 1, self._key(namespace, entity), judged, data, ttl_ms))

    async def remaining_s(self, namespace: str, entities: Sequence[str]) -> list[float]:
        """See ``Store``."""
        async with self._client.pipeline(transaction=False) as pipeline:
            for entity in entities:
                pipeline.pttl(self._key(namespace, entity))
            return [max(ms, 0) / 1000 for ms in await pipeline.execute()]

    async def publish(self, namespace: str, payload: bytes) -> None:
        """See ``Store``."""
        channel = keys.news_channel(self._prefix, namespace)
        await self._client.execute_command("PUBLISH", channel, payload)

    async def news(self, namespaces: Sequence[str]) -> AsyncGenerator[tuple[str, bytes | None], None]:
        """See ``Store``."""
        channels = {keys.news_channel(self._prefix, n).encode(): n for n in namespaces}
        if isinstance(self._client, RedisCluster):
            await self._client.initialize()
        async with self._client.pubsub() as pubsub:
            await pubsub.subscribe(*channels)
            async for message in pubsub.listen():
                namespace = channels.get(message["channel"])
                # The client reconnects by itself and subscribes again: the confirmation is all that tells of it.
                if namespace is not None and message["type"] == "subscribe":
                    yield namespace, None
                elif namespace is not None and message["type"] == "message":
                    yield namespace, message["data"]

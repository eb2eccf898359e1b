"""The second half of a cycle: bring what changed in one syncable into Redis, pipeline by pipeline.

What is not known to be written stays dirty, also when the push is cut in the middle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection

from redis.exceptions import RedisError

from aibrix_operator.statesync import slices
from aibrix_operator.statesync.entry import Entry
from aibrix_operator.statesync.pull import Tools, in_turns, restore_tombstone
from aibrix_operator.statesync.slices import RollingRefresh
from aibrix_operator.statesync.store import AWAY, chunks
from aibrix_operator.statesync.syncable import DeltaSyncable, Lasting, Tombstones

logger = logging.getLogger(__name__)

MOST_ENTRIES = 10_000
MOST_MEAN_BYTES = 512 * 1024


class _Writes:
    """The pipelines of one push. One that Redis refuses does not hold up those after it; Redis being away does."""

    def __init__(self, entry: Entry, tools: Tools, op: str = "pushed") -> None:
        self._entry = entry
        self._tools = tools
        self._op = op
        self._refused: RedisError | None = None

    async def write(self, values: dict[str, bytes]) -> set[str]:
        """Returns which of them are in Redis now."""
        entry = self._entry
        written = await self._try(values, entry.namespace, entry.ttl_s)
        entry.mended.update((entity, values[entity]) for entity in written & entry.ahead)
        entry.ahead -= written
        entry.absent -= written
        entry.missing -= written
        if written:
            await settle_deletions(entry, values, self._tools)
        self._tools.metrics.entities.labels(entry.namespace, self._op).inc(len(written))
        return written

    async def delete(self, entities: list[str]) -> set[str]:
        """By tombstones where the syncable has them. Returns which are deleted in Redis now."""
        entry, store = self._entry, self._tools.store
        if entry.tombstones is None:
            done = set(entities) if await self._passes(store.delete(entry.namespace, entities)) else set()
        else:
            tombstones = {entity: entry.tombstones.make_tombstone(entity) for entity in entities}
            done = await self._try(tombstones, entry.namespace, entry.ttl_s)
            await self._settle_tombstones(entry.tombstones, {entity: tombstones[entity] for entity in done})
        self._tools.metrics.entities.labels(entry.namespace, "push_deleted").inc(len(done))
        return done

    async def _settle_tombstones(self, order: Tombstones, written: dict[str, bytes]) -> None:
        """Remember them, unless a newer one came meanwhile, which is then put back."""
        entry = self._entry
        for entity, tombstone in written.items():
            now_s = self._tools.now_s()
            known = entry.deletions.of(entity, now_s)
            if known is not None and order.supersedes(known.tombstone, tombstone):
                await restore_tombstone(entry, entity, tombstone, self._tools)
            else:
                entry.deletions.remember(entity, tombstone, now_s + entry.ttl_s)

    def end(self) -> None:
        """Raises what Redis refused, if it did."""
        if self._refused is not None:
            raise self._refused

    async def _try(self, values: dict[str, bytes], namespace: str, ttl_s: float) -> set[str]:
        if not values or not await self._passes(self._tools.store.write(namespace, values, ttl_s)):
            return set()
        return set(values)

    async def _passes(self, writing: Awaitable[None]) -> bool:
        try:
            await writing
        except AWAY:
            raise
        except RedisError as error:
            self._refused = error
            return False
        return True


async def settle_deletions(entry: Entry, written: dict[str, bytes], tools: Tools) -> None:
    """After a write: what is strictly newer ends the memory of a deletion; a deletion that was made during the write
    gets its tombstone back."""
    if not entry.deletions:
        return
    for entity, data in written.items():
        if entry.holds_back(entity, data, tools.now_s()):
            await restore_tombstone(entry, entity, data, tools)
        else:
            entry.deletions.forget(entity)


async def push(entry: Entry, tools: Tools) -> frozenset[int]:
    """Raises the store's errors. Returns the slices that were written anew, for the peers to hear."""
    entry.deletions.drop_ended(tools.now_s())
    if entry.delta is None:
        await _push_whole(entry, tools)
        return frozenset()
    await _push_delta(entry, entry.delta, tools)
    await _rewrite(entry, entry.delta, tools)
    if entry.lasting is not None and entry.refresh is not None:
        return await _refresh(entry, entry.lasting, entry.refresh, tools)
    return frozenset()


async def _push_whole(entry: Entry, tools: Tools) -> None:
    values = entry.allowed(entry.syncable.snapshot(), tools.now_s())
    _warn_of_size(entry, values, tools)
    writes = _Writes(entry, tools)
    for batch in chunks(values, tools.options.write_batch):
        await writes.write({entity: values[entity] for entity in batch})
    writes.end()


def _warn_of_size(entry: Entry, values: dict[str, bytes], tools: Tools) -> None:
    namespace, size = entry.namespace, sum(len(data) for data in values.values())
    tools.metrics.snapshot_entries.labels(namespace).set(len(values))
    tools.metrics.snapshot_bytes.labels(namespace).set(size)
    if len(values) > MOST_ENTRIES:
        tools.metrics.capacity_warnings.labels(namespace, "entries").inc()
        logger.warning("%s: %d entries are pushed whole, above %d", namespace, len(values), MOST_ENTRIES)
    if values and size / len(values) > MOST_MEAN_BYTES:
        tools.metrics.capacity_warnings.labels(namespace, "bytes").inc()
        logger.warning("%s: %d bytes an entry, above %d", namespace, size // len(values), MOST_MEAN_BYTES)


async def _push_delta(entry: Entry, syncable: DeltaSyncable, tools: Tools) -> None:
    drained = syncable.get_delta()
    left = {*drained.changes.updated, *drained.changes.deleted}
    writes = _Writes(entry, tools)
    try:
        await _write_updated(entry, syncable, drained.changes.updated, writes, left, tools)
        for batch in chunks(drained.changes.deleted, tools.options.write_batch):
            # One that is held again came back strictly newer, from here (then it is dirty again) or from a peer.
            again = syncable.encode(batch).keys()
            left -= again
            left -= await writes.delete([entity for entity in batch if entity not in again])
        writes.end()
    finally:
        syncable.clear_dirty(drained.generation, left)
        tools.metrics.dirty_entities.labels(entry.namespace).set(len(left))


async def _write_updated(
    entry: Entry, syncable: DeltaSyncable, updated: Collection[str], writes: _Writes, left: set[str], tools: Tools
) -> None:
    """What was evicted is forgotten (its key expires), also while Redis is away: it would pile up otherwise."""
    away: BaseException | None = None
    for batch in chunks(updated, tools.options.write_batch):
        held = syncable.encode(batch)
        left.difference_update(entity for entity in batch if entity not in held)
        if away is not None:
            await asyncio.sleep(0)
            continue
        try:
            left -= await writes.write(entry.allowed(held, tools.now_s()))
        except AWAY as error:
            away = error
    if away is not None:
        raise away


async def _rewrite(entry: Entry, syncable: DeltaSyncable, tools: Tools) -> None:
    """Write what Redis lacks although nothing changed here."""
    writes = _Writes(entry, tools)
    for batch in chunks(entry.ahead | entry.absent, tools.options.write_batch):
        held = entry.allowed(syncable.encode(batch), tools.now_s())
        not_held = [entity for entity in batch if entity not in held]
        entry.ahead.difference_update(not_held)
        entry.absent.difference_update(not_held)
        await writes.write(held)
    writes.end()


async def _refresh(entry: Entry, syncable: Lasting, refresh: RollingRefresh, tools: Tools) -> frozenset[int]:
    """Write the slices anew that nobody wrote for long, so that a replica that starts late finds what is in use."""
    due = refresh.due(tools.now_s())
    if not due:
        return due
    live = syncable.live_ids()
    members = [entity async for entity in in_turns(live) if slices.slice_of(entity) in due]
    writes = _Writes(entry, tools, "refreshed")
    for batch in chunks(members, tools.options.write_batch):
        await writes.write(entry.allowed(syncable.encode(batch), tools.now_s()))
    writes.end()
    refresh.written(due, tools.now_s())
    return due

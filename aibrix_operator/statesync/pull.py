"""The first half of a cycle: bring what is in Redis into one syncable.

Everything is pulled at the start, after a gap in what peers announced, and now and then as a repair. A cycle in between
asks only for the live entities that the last whole pull did not see: a scan can miss a key, and a peer may not have
pushed yet, so only a second look says that it is gone.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass

from aibrix_operator.statesync.entry import Entry, Fate
from aibrix_operator.statesync.metrics import StatesyncMetrics
from aibrix_operator.statesync.options import Options
from aibrix_operator.statesync.store import Store, Values, chunks

logger = logging.getLogger(__name__)

AT_ONCE = 2_000
"""So many ids are looked at before other work gets its turn."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What the steps of a cycle work with."""

    store: Store
    options: Options
    metrics: StatesyncMetrics
    now_s: Callable[[], float]
    """Monotonic."""
    rng: random.Random


async def in_turns(entities: Collection[str]) -> AsyncIterator[str]:
    """``entities`` one by one, without holding up the event loop however many they are."""
    for count, entity in enumerate(entities, start=1):
        yield entity
        if count % AT_ONCE == 0:
            await asyncio.sleep(0)


async def pull(entry: Entry, tools: Tools) -> None:
    """Raises what the store raises; then everything is due again."""
    reason = entry.whole_pull_reason(tools.now_s())
    if not reason:
        await _look_again(entry, tools)
        return
    tools.metrics.pulls.labels(entry.namespace, reason).inc()
    # Cleared first: a gap that is noticed during the pull asks for another one.
    entry.whole_due = ""
    _run_hook(entry, "on_sync_start")
    try:
        await _pull_all(entry, tools)
    except BaseException:
        entry.whole_due = reason
        raise
    finally:
        _run_hook(entry, "on_sync_end")


def _run_hook(entry: Entry, name: str) -> None:
    if entry.hooks is None:
        return
    try:
        getattr(entry.hooks, name)()
    except Exception:  # a hook is the component's, and the pull does not depend on it
        logger.exception("%s of %s failed; the pull goes on", name, entry.namespace)


async def _pull_all(entry: Entry, tools: Tools) -> None:
    seen: set[str] = set()
    async for batch in tools.store.entities(entry.namespace):
        seen.update(entity for entity, data in batch if data is not None)
        await _absorb(entry, batch, tools)
    if entry.lasting is not None:
        live = entry.lasting.live_ids()
        tools.metrics.snapshot_entries.labels(entry.namespace).set(len(live))
        missing = {entity async for entity in in_turns(live) if entity not in seen}
        entry.absent |= missing & entry.missing
        entry.missing = missing - entry.absent
    entry.next_repair_s = tools.now_s() + tools.options.repair_period_s * tools.rng.uniform(0.9, 1.1)


async def _look_again(entry: Entry, tools: Tools) -> None:
    """Ask for each entity that the last whole pull did not see; those that are really gone are written by the push."""
    asked, entry.missing = entry.missing, set()
    left = set(asked)
    try:
        for batch in chunks(asked, tools.options.mget_batch):
            values = await tools.store.fetch(entry.namespace, batch)
            left.difference_update(batch)
            entry.absent.update(entity for entity, data in values if data is None)
            await _absorb(entry, values, tools)
    except BaseException:
        entry.missing |= left
        raise


async def _absorb(entry: Entry, values: Values, tools: Tools) -> None:
    """Apply a batch, and put right in Redis what a deletion or the stale policy forbids."""
    now_s = tools.now_s()
    fates: dict[Fate, dict[str, bytes]] = {}
    for entity, data in values:
        if data is not None:
            fates.setdefault(entry.receive(entity, data, now_s), {})[entity] = data
    for fate, found in fates.items():
        if fate not in (Fate.STALE, Fate.DELETED_BEFORE):
            tools.metrics.entities.labels(entry.namespace, _op(fate)).inc(len(found))
    if entry.delta is not None:
        entry.ahead.update(fates.get(Fate.AHEAD, ()))
    await _learn_ends(entry, fates.get(Fate.DELETED, {}), tools)
    await _delete_stale(entry, fates.get(Fate.STALE, {}), tools)
    for entity, data in fates.get(Fate.REFUSED, {}).items():
        await restore_tombstone(entry, entity, data, tools)


def _op(fate: Fate) -> str:
    """The metric's word: what was merged was applied, whether or not we know more."""
    return Fate.APPLIED.value if fate is Fate.AHEAD else fate.value


async def _learn_ends(entry: Entry, tombstones: dict[str, bytes], tools: Tools) -> None:
    """A deletion is remembered as long as its tombstone lasts in Redis, and no longer."""
    if not tombstones:
        return
    entities = list(tombstones)
    remaining_s = await tools.store.remaining_s(entry.namespace, entities)
    now_s = tools.now_s()
    for entity, left_s in zip(entities, remaining_s, strict=True):
        entry.deletions.ends_sooner(entity, tombstones[entity], now_s + left_s)


async def _delete_stale(entry: Entry, stale: dict[str, bytes], tools: Tools) -> None:
    if stale:
        deleted = await tools.store.delete_if(entry.namespace, stale)
        tools.metrics.entities.labels(entry.namespace, "stale_deleted").inc(deleted)


async def restore_tombstone(entry: Entry, entity: str, written_over: bytes, tools: Tools) -> None:
    """A replica that had not heard of a deletion wrote over its tombstone, unless somebody wrote since."""
    now_s = tools.now_s()
    deletion = entry.deletions.of(entity, now_s)
    # Without one, the deletion was made here and is not in Redis yet: the push brings it.
    if deletion is not None:
        left_s = deletion.ends_s - now_s
        await tools.store.replace_if(entry.namespace, entity, written_over, deletion.tombstone, left_s)
        entry.mended[entity] = deletion.tombstone

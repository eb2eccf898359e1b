"""Asks each Pod's engine what it has, once for all adapters that care, and wakes those about which the answer changed.

A restarted engine has forgotten its adapters while its Pod stays ready; nothing but its list tells. What is read may be
lost: the next list brings it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from aibrix_operator.cluster.resource import Key
from aibrix_operator.modeladapter.engines import Access, Engines
from aibrix_operator.modeladapter.snapshot import ListedModel, Listing, Target
from aibrix_operator.modeladapter.work import Work, WorkTold, added, is_news

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
"""An engine that lost an adapter is known so late."""
_FIRST_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Door:
    """Whom to ask, and how one is let in: adapters with different keys ask apart."""

    target: Target
    access: Access


@dataclass
class _Reader:
    door: Door
    wanted_by: dict[Key, str] = field(default_factory=dict)
    """Adapter → the name that it goes by in the engine."""
    has: dict[Key, ListedModel | None] = field(default_factory=dict)
    """What each adapter was told last of itself, or did since; no entry: nothing yet."""
    touched_at_s: dict[str, float] = field(default_factory=dict)
    """Name of an adapter → when the engine was last told to load or unload it, by any object of that name."""
    to_tell: set[Key] = field(default_factory=set)
    """Adapters that wait for the next answer, whatever it is."""
    listing: Listing | None = None
    works: list[Work] = field(default_factory=list)
    """Readings of its metrics in the window, oldest first."""
    work: WorkTold | None = None
    asks_soon: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Readers:
    """All readers of one term. ``look`` wakes an adapter's pass."""

    def __init__(self, engines: Engines, look: Callable[[Key], None], *, reads_work: bool = False) -> None:
        """``reads_work``: metrics are read beside each list."""
        self._engines = engines
        self._look = look
        self._reads_work = reads_work
        self._readers: dict[Door, _Reader] = {}
        self._doors: dict[Key, frozenset[Door]] = {}

    def want(self, key: Key, name: str, doors: Iterable[Door]) -> None:
        """From now on the adapter cares about these engines and no others."""
        wanted, before = frozenset(doors), self._doors.get(key, frozenset())
        for door in before - wanted:
            self._release(key, door)
        for door in wanted - before:
            reader = self._readers.get(door)
            if reader is None:
                reader = self._readers[door] = _Reader(door)
                reader.task = asyncio.get_running_loop().create_task(
                    self._read(reader), name=f"list of {door.target.pod}"
                )
            reader.wanted_by[key] = name
            if reader.listing is not None and self.listing(key, door, name) is None:
                self.ask_soon(key, door)
        if wanted:
            self._doors[key] = wanted
        else:
            self._doors.pop(key, None)

    def listing(self, key: Key, door: Door, name: str) -> Listing | None:
        """The last answer; None before the first that can be one about the adapter of that name: an object that takes
        the name of one that was just deleted must not be told of what its namesake had. It is told of the next one."""
        reader = self._readers.get(door)
        if reader is None or reader.listing is None:
            return None
        if reader.listing.error == "" and reader.listing.asked_at_s < reader.touched_at_s.get(name, 0.0):
            reader.to_tell.add(key)
            return None
        return reader.listing

    def work(self, door: Door) -> WorkTold | None:
        """What the engine's metrics told last; None before the first answer."""
        reader = self._readers.get(door)
        return reader.work if reader is not None else None

    def touched(self, door: Door, name: str, at_s: float) -> None:
        """The engine was told to load or unload it: what it was asked for before does not count any more."""
        reader = self._readers.get(door)
        if reader is not None:
            reader.touched_at_s[name] = at_s

    def did(self, key: Key, door: Door, *, loaded: bool) -> None:
        """The engine has it now, or not any more: a list that says otherwise is news."""
        reader = self._readers.get(door)
        if reader is not None and key in reader.wanted_by:
            reader.has[key] = ListedModel(is_base=False) if loaded else None

    def ask_soon(self, key: Key, door: Door) -> None:
        """Ask now, and tell the adapter: something was sent to the engine that nobody answered."""
        reader = self._readers.get(door)
        if reader is not None:
            reader.to_tell.add(key)
            reader.asks_soon.set()

    async def stop(self) -> None:
        """End all."""
        tasks = [reader.task for reader in self._readers.values() if reader.task is not None]
        self._readers.clear()
        self._doors.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _release(self, key: Key, door: Door) -> None:
        reader = self._readers[door]
        reader.wanted_by.pop(key, None)
        reader.has.pop(key, None)
        reader.to_tell.discard(key)
        if not reader.wanted_by:
            del self._readers[door]
            if reader.task is not None:
                reader.task.cancel()

    async def _read(self, reader: _Reader) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            reader.asks_soon.clear()
            asked_at_s = loop.time()
            found, is_work_news = await asyncio.gather(self._list(reader), self._read_work(reader))
            before = reader.listing
            reader.listing = (
                Listing(asked_at_s, {}, found) if isinstance(found, str) else Listing(asked_at_s, dict(found))
            )
            failures = failures + 1 if reader.listing.error else 0
            self._tell(reader, before, reader.listing, is_work_news=is_work_news)
            pause_s = min(_FIRST_RETRY_S * 2 ** min(failures - 1, 8), INTERVAL_S) if failures else INTERVAL_S
            try:
                async with asyncio.timeout(pause_s):
                    await reader.asks_soon.wait()
            except TimeoutError:
                continue

    async def _list(self, reader: _Reader) -> Mapping[str, ListedModel] | str:
        try:
            return await self._engines.models(reader.door.target, reader.door.access)
        except Exception as error:
            # A fault of ours must not blind the reader for good.
            log.exception("list of %s", reader.door.target.pod)
            return f"the list failed: {type(error).__name__}"

    async def _read_work(self, reader: _Reader) -> bool:
        """Read the engine's metrics; whether a choice may be possible now that was not before."""
        if not self._reads_work:
            return False
        try:
            read = await self._engines.work(reader.door.target, reader.door.access)
        except Exception as error:
            log.exception("metrics of %s", reader.door.target.pod)
            read = f"the reading failed: {type(error).__name__}"
        before, reader.work = reader.work, added(reader.works, read)
        return is_news(before, reader.work)

    def _tell(self, reader: _Reader, before: Listing | None, after: Listing, *, is_work_news: bool) -> None:
        """Wake those whose standing there may be another now."""
        waiting, reader.to_tell = reader.to_tell, set()
        is_other = before is None or before.error != after.error or is_work_news
        for key, name in list(reader.wanted_by.items()):
            found = after.models.get(name)
            is_changed = not after.error and (key not in reader.has or reader.has[key] != found)
            if not after.error:
                reader.has[key] = found
            if is_changed or is_other or key in waiting:
                self._look(key)

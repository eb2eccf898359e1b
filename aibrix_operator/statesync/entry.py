"""One registered syncable and all that the layer remembers about it. No I/O: ``receive`` and ``holds_back`` decide."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from enum import StrEnum

from aibrix_operator.statesync import intervals, slices
from aibrix_operator.statesync.deletions import Deletions
from aibrix_operator.statesync.news import Heard
from aibrix_operator.statesync.options import Options
from aibrix_operator.statesync.syncable import (
    Announcing,
    DeltaSyncable,
    Lasting,
    OwnTtl,
    StalePolicy,
    Syncable,
    SyncHooks,
    Tombstones,
)

logger = logging.getLogger(__name__)


class Fate(StrEnum):
    """What became of a value that came from Redis or from a peer."""

    APPLIED = "applied"
    AHEAD = "ahead"
    """Merged, and what is held here is more: Redis needs it again."""
    DELETED = "tombstone"
    DELETED_BEFORE = "tombstone_again"
    STALE = "stale"
    REFUSED = "refused"
    """The entity was deleted, and what came is older than that."""
    CORRUPT = "apply_error"


class Entry:
    """The state of one namespace in the layer. Used on the event loop's thread alone."""

    def __init__(self, syncable: Syncable, options: Options, now_s: float, rng: random.Random) -> None:
        self.syncable = syncable
        self.namespace = syncable.namespace
        self.delta = syncable if isinstance(syncable, DeltaSyncable) else None
        self.hooks = syncable if isinstance(syncable, SyncHooks) else None
        self.stale = syncable if isinstance(syncable, StalePolicy) else None
        self.tombstones = syncable if isinstance(syncable, Tombstones) else None
        self.lasting = syncable if isinstance(syncable, Lasting) else None
        self.announcing = syncable if options.announce and isinstance(syncable, Announcing) else None
        own_ttl_s = syncable.record_ttl_s if isinstance(syncable, OwnTtl) else 0.0
        self.ttl_s = own_ttl_s if own_ttl_s > 0 else options.record_ttl_s

        self.deletions = Deletions()
        self.ahead: set[str] = set()
        """What is held here is more than what Redis holds, although it is not dirty: somebody wrote over it. The next
        push writes it, and tells those who read the lesser value."""
        self.absent: set[str] = set()
        """Live here and gone from Redis. The next push writes them."""
        self.not_understood: Counter[str] = Counter()
        """Values that were left alone since the last cycle, by the kind of error."""
        self.mended: dict[str, bytes] = {}
        """What was put right in Redis and peers must be told."""
        self.missing: set[str] = set()
        """Live here and not seen by the last whole pull, which can miss a key. The next cycle asks for each."""
        self.refresh = self._rolling_refresh(options, now_s, rng)

        self.whole_due = "start"
        """Why the next cycle must pull everything; empty when it need not."""
        self.next_repair_s = now_s
        self.listening = False
        self.heard = Heard()
        self.sending = asyncio.Lock()
        """Messages leave in the order of their numbers."""
        self.last_number = 0
        self.beats_sent = 0
        self.last_beat_s = now_s
        self.beats_heard = 0

    def _rolling_refresh(self, options: Options, now_s: float, rng: random.Random) -> slices.RollingRefresh | None:
        if self.lasting is None:
            return None
        interval_s = intervals.refresh_interval_s(self.ttl_s, self.lasting.life_s, options.period_s)
        if interval_s is None:
            return None
        return slices.RollingRefresh(interval_s, now_s, [rng.random() for _ in range(slices.COUNT)])

    def receive(self, entity: str, data: bytes, now_s: float) -> Fate:
        """Judge one remote value and apply it. Tombstones come before the stale policy, that before the merge."""
        try:
            if self.tombstones is not None and self.tombstones.is_tombstone(data):
                return self._receive_tombstone(self.tombstones, entity, data, now_s)
            if self.stale is not None and self.stale.is_stale(entity, data):
                return Fate.STALE
            if self.holds_back(entity, data, now_s) or self._is_deleted_here(entity, data):
                return Fate.REFUSED
            ahead = self.syncable.apply_remote(entity, data)
        except Exception as error:  # whatever a merge raises for bytes of another version: one value, not the cycle
            # Ids and values may be a client's own (a session key): no log names them, and no message that quotes them.
            self.not_understood[type(error).__name__] += 1
            return Fate.CORRUPT
        self.deletions.forget(entity)
        return Fate.AHEAD if ahead else Fate.APPLIED

    def _receive_tombstone(self, tombstones: Tombstones, entity: str, data: bytes, now_s: float) -> Fate:
        known = self.deletions.of(entity, now_s)
        if known is not None and tombstones.supersedes(known.tombstone, data):
            return Fate.REFUSED
        if not tombstones.delete_local(entity, data):
            return Fate.AHEAD
        if known is not None and (known.tombstone == data or not tombstones.supersedes(data, known.tombstone)):
            return Fate.DELETED_BEFORE  # seeing a tombstone again does not make it last longer
        self.deletions.remember(entity, data, now_s + self.ttl_s)
        return Fate.DELETED

    def holds_back(self, entity: str, data: bytes, now_s: float) -> bool:
        """Whether a deletion that still holds forbids this value, in either direction."""
        deletion = self.deletions.of(entity, now_s)
        if deletion is None or self.tombstones is None:
            return False
        return not self.tombstones.supersedes(data, deletion.tombstone)

    def _is_deleted_here(self, entity: str, data: bytes) -> bool:
        if self.delta is None or not self.delta.is_deleted_here(entity):
            return False
        if self.tombstones is None:
            return True
        return not self.tombstones.supersedes(data, self.tombstones.make_tombstone(entity))

    def warn_of_not_understood(self) -> None:
        """Once a cycle, however many they are."""
        if self.not_understood:
            kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(self.not_understood.items()))
            logger.warning("%s: values were not understood and left alone: %s", self.namespace, kinds)
            self.not_understood.clear()

    def whole_pull_reason(self, now_s: float) -> str:
        """Why this cycle pulls everything; empty when peers were heard and nothing of theirs is missing."""
        if self.whole_due:
            return self.whole_due
        if self.announcing is None or not self.listening:
            return "period"
        return "repair" if now_s >= self.next_repair_s else ""

    def allowed(self, values: dict[str, bytes], now_s: float) -> dict[str, bytes]:
        """Those of ``values`` that no deletion forbids to write."""
        if not self.deletions:
            return values
        return {entity: data for entity, data in values.items() if not self.holds_back(entity, data, now_s)}

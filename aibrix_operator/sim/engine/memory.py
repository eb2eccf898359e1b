"""An engine's books: its footprint and KV pages on the cards, and what the segment says about them.

Growth either fits under the limit in force or is refused; what passes the limit but not the card raises
``card.CardOutOfMemory``, which ends the engine, as an allocation failure ends a real one.
"""

import contextlib
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path

from aibrix_operator.sim import card
from aibrix_operator.sim.engine.profile import Profile
from aibrix_operator.sim.engine.segment import Busy, Segment

# The pool of an engine that runs on no simulated card (a test of HTTP alone) and whose profile names none.
_POOL_WITHOUT_CARD = 64 * 1024**3


class Grant(Enum):
    """The answer to a request for KV memory."""

    GIVEN = auto()
    OVER_LIMIT = auto()
    BUSY = auto()  # the segment is locked: ask again in a moment


class Memory:
    """Figures are per card and equal on all of the engine's cards."""

    def __init__(
        self, profile: Profile, directory: Path | None, cards: Sequence[card.Card], segment: Segment | None
    ) -> None:
        self._profile = profile
        self._directory = directory
        self._cards = tuple(cards)
        self._segment = segment
        usable = min((each.usable_bytes for each in self._cards), default=_POOL_WITHOUT_CARD)
        self._default_limit_bytes = usable if profile.kv_pool_bytes is None else profile.kv_pool_bytes
        self._published = True
        self.used_bytes = 0
        self.prealloc_bytes = 0

    def boot(self) -> None:
        """Take the awake footprint."""
        self._hold(footprint_bytes=self._profile.footprint_bytes)

    def open_pool(self) -> None:
        """Start the KV pool at the default limit, whatever a former engine left in the segment."""
        self.prealloc_bytes = min(
            self._pages(self._profile.prealloc_bytes), self._whole_pages(self._default_limit_bytes)
        )
        self._hold(kv_bytes=self.prealloc_bytes)
        if self._segment is not None:
            self._segment.rebuild(self._default_limit_bytes, self.prealloc_bytes)

    def sleep(self) -> None:
        """Unmap all KV and drop to the asleep footprint."""
        self.used_bytes = self.prealloc_bytes = 0
        self._hold(footprint_bytes=self._profile.asleep_footprint_bytes, kv_bytes=0)
        self._published = False
        self.publish()

    def wake(self) -> None:
        """Take the awake footprint back."""
        self._hold(footprint_bytes=self._profile.footprint_bytes)

    @property
    def limit_bytes(self) -> int:
        return self._default_limit_bytes if self._segment is None else self._segment.read_limit_bytes()

    @property
    def usage(self) -> float:
        """The part of the limit that requests use, at most 1."""
        limit = self.limit_bytes
        return min(self.used_bytes / limit, 1.0) if limit > 0 else 1.0

    @property
    def is_published(self) -> bool:
        """Whether the segment says what is mapped; False after a change while somebody held its lock."""
        return self._published or self._segment is None

    def fits(self, tokens: int) -> bool:
        """Whether the limit in force has room for KV of ``tokens`` in all."""
        return self._pages(tokens * self._profile.kv_bytes_per_token) <= self.limit_bytes

    def resize(self, tokens: int) -> Grant:
        """Have KV mapped for exactly ``tokens`` in all, as whole pages. Giving back always works."""
        need = self._pages(tokens * self._profile.kv_bytes_per_token)
        if need == self.used_bytes:
            return Grant.GIVEN
        if need < self.used_bytes:
            self._shrink(need)
            return Grant.GIVEN
        if self._segment is None:
            return self._grow(need)
        try:
            with self._segment.locked():
                grant = self._grow(need)
                self._segment.write(self.used_bytes, self.prealloc_bytes)
                self._published = True
                return grant
        except Busy:
            return Grant.BUSY

    def publish(self) -> None:
        """Tell the segment what is mapped, if it does not say so yet; a locked segment is told next time."""
        if self._segment is None or self._published:
            return
        with contextlib.suppress(Busy), self._segment.locked():
            self._segment.write(self.used_bytes, self.prealloc_bytes)
            self._published = True

    def _grow(self, need: int) -> Grant:
        limit = self.limit_bytes
        if need > limit:
            return Grant.OVER_LIMIT
        # Pages mapped ahead are used first; those that a lower limit no longer covers are unmapped.
        prealloc = min(max(self.prealloc_bytes - (need - self.used_bytes), 0), self._whole_pages(limit - need))
        self._hold(kv_bytes=need + prealloc)
        self.used_bytes, self.prealloc_bytes = need, prealloc
        return Grant.GIVEN

    def _shrink(self, need: int) -> None:
        kept = min(self.prealloc_bytes + self.used_bytes - need, self._pages(self._profile.prealloc_bytes))
        self.prealloc_bytes = min(kept, self._whole_pages(max(self.limit_bytes - need, 0)))
        self.used_bytes = need
        self._hold(kv_bytes=need + self.prealloc_bytes)
        self._published = False
        self.publish()

    def _hold(self, *, footprint_bytes: int | None = None, kv_bytes: int | None = None) -> None:
        for each in self._cards:
            assert self._directory is not None, "cards come from a directory"
            card.hold(self._directory, each.uuid, footprint_bytes=footprint_bytes, kv_bytes=kv_bytes)

    def _pages(self, size: int) -> int:
        """The memory of the pages that ``size`` needs."""
        page = self._profile.kv_page_bytes
        return -(-size // page) * page

    def _whole_pages(self, size: int) -> int:
        """The memory of the pages that find room in ``size``."""
        return size - size % self._profile.kv_page_bytes

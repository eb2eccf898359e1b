"""The rolling refresh: entities are divided into slices by a hash of their id, and each slice is written anew in turn.

A replica that refreshed slices says so to the others, who then need not do it too; so the cost does not grow with the
number of replicas. An entity that the refreshing replica does not hold is found missing by the repair pull of one that
does. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence

COUNT = 64
"""All versions in a fleet must agree on it, because slices are told by their number."""


def slice_of(entity: str) -> int:
    """The slice of an entity, the same on every replica."""
    return zlib.crc32(entity.encode(errors="surrogateescape")) % COUNT


class RollingRefresh:
    """When which slice was last written, as far as this replica knows."""

    def __init__(self, interval_s: float, now_s: float, drawn: Sequence[float]) -> None:
        """``drawn``: one number in [0, 1) a slice. It spreads the slices over the interval, and replicas apart."""
        self._interval_s = interval_s
        self._written_s = [now_s - interval_s * share for share in drawn[:COUNT]]

    def due(self, now_s: float) -> frozenset[int]:
        """Slices that nobody wrote for an interval."""
        return frozenset(s for s, written_s in enumerate(self._written_s) if now_s - written_s >= self._interval_s)

    def written(self, slices: Collection[int], now_s: float) -> None:
        """These were written, here or by a replica that said so. Numbers of no slice are ignored."""
        for number in slices:
            if 0 <= number < COUNT:
                self._written_s[number] = now_s

"""One figure for all that happened in a play, by which two plays are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from aibrix_operator.sim.world import SimulatedCluster


def trace_of(cluster: SimulatedCluster, story: Sequence[str]) -> str:
    """Over the story, every accepted write, every call to a runtime with its time, and every Event."""
    digest = hashlib.blake2b(digest_size=12)
    for part in (story, cluster.store.writes, cluster.runtimes.history, cluster.store.events):
        digest.update(repr(part).encode())
    return digest.hexdigest()

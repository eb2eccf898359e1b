"""What a run plays on: an API server with a pool, the fleet that this process plays, and a watcher of both."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.sandbox.control_plane import ControlPlane
from bench.controller import harness, objects, peers, usage
from bench.fleet.played import PlayedFleet, until
from bench.fleet.watching import Watcher

FLEET = peers.ROOMY
_WRITERS = 8
# Idle engines are looked for each round, and none has been idle for long enough.
_POLICY = '{"lifecycle":{"sleepAfterSeconds":86400}}'
_QUIET_S = 3.0
"""Without a write or a changing call for so long, nothing is pending: steps follow each other in a fraction of it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One API server of a run's own, and who plays on it."""

    claims: int
    plane: ControlPlane
    cluster: Cluster
    folder: Path
    fleet: PlayedFleet
    watcher: Watcher

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, claims: int, silent: int = 0) -> AsyncIterator[Stage]:
        """Cards for ``claims``, none of which is there yet, and ``silent`` Pods more whose runtimes never answer."""
        pods = -(-claims // FLEET.claims_per_pod)
        with harness.api_server() as (plane, folder):
            fleet = PlayedFleet(pods, FLEET.usable_bytes, silent)
            await fleet.start()
            try:
                async with await Cluster.connect(plane.kubeconfig) as cluster:
                    await harness.prepare(cluster)
                    owner = await objects.create_pool(cluster, _POLICY, pods + silent)
                    await objects.create_pods(cluster, pods + silent, owner)
                    watcher = Watcher()
                    async with watcher.following(cluster):
                        yield cls(claims, plane, cluster, folder, fleet, watcher)
            finally:
                await fleet.stop()

    async def until_read(self, before: set[str], within_s: float = 120) -> str:
        """The term of the first leader after those ``before`` that has read every card."""
        terms = self.fleet.all_read_s
        await until("the operator reads every card", lambda: terms.keys() > before, within_s)
        return next(term for term in terms if term not in before)

    async def place(self, within_s: float) -> float:
        """Apply the claims; seconds until all of them are Active and routed."""
        began_s = time.monotonic()
        names = (f"claim-{number:05d}" for number in range(self.claims))
        await objects.create_claims(self.cluster, names, FLEET, _WRITERS)
        await until("every claim is served", lambda: self.watcher.served == self.claims, within_s)
        return time.monotonic() - began_s

    async def settle(self) -> None:
        """Return once nothing has been changed for a while, at a runtime or at the API server."""
        last: Mapping[str, int] = {}
        changed_s = time.monotonic()
        while time.monotonic() - max(changed_s, self.fleet.changed_s) < _QUIET_S:
            now = self.writes_since({})
            if now != last:
                last, changed_s = now, time.monotonic()
            await asyncio.sleep(0.2)

    def writes(self) -> Mapping[str, int]:
        """All write requests so far, by verb and kind."""
        return usage.writes(self.plane)

    def writes_since(self, before: Mapping[str, int]) -> Mapping[str, int]:
        """Those since ``before``, without the Lease's renewals and the creation of claims."""
        made = collections.Counter(self.writes())
        made.subtract(before)
        return {k: n for k, n in made.items() if n and not k.endswith(" leases") and k != "POST modelclaims"}

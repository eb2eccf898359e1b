"""Where a page's looks come from: the caches of the operator's process. Calls nobody but runtimes that nobody reads.

The leading replica reads runtimes anyway, and the page takes those readings. Any other replica knows claims and Pods
from its watches; it reads runtimes itself, and only while somebody looks at its page.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict
from typing import Protocol

from aibrix_operator.api import names
from aibrix_operator.explain.looking import Look
from aibrix_operator.modelclaim.parse import UnreadableClaim
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Pod, Pool, Reading
from aibrix_operator.modelclaim.world import World
from aibrix_operator.runtime_api.client import base_url
from aibrix_operator.runtime_api.outcome import Done

READ_S = 2.0
"""A look waits no longer for a runtime."""
READS_AT_ONCE = 64
KEPT_S = 10.0
"""For so long the last reading stands in for one that the operator has discarded, because it wrote to the runtime."""


class Source(Protocol):
    """Whatever can look."""

    async def look(self) -> Look:
        """What there is now. CannotLook when nothing can be said."""
        ...


class WorldSource:
    """Looks at what an operator's process knows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kept: dict[str, tuple[float, Reading]] = {}
        """Pod UID → when its runtime last said something, on the event loop's clock, and what."""
        self._turns = asyncio.Semaphore(READS_AT_ONCE)

    async def look(self) -> Look:
        """All claims and warm Pods of the caches, each Pod with the reading that there is."""
        claims, unreadable = self._claims()
        pods = await asyncio.gather(*(self._read(pod) for pod in self._pods(claims)))
        found: dict[str, tuple[list[Claim], dict[str, Pod]]] = defaultdict(lambda: ([], {}))
        for claim in claims:
            found[claim.namespace][0].append(claim)
        for pod in pods:
            found[pod.namespace][1][pod.name] = pod
        uids = {pod.uid for pod in pods}
        self._kept = {uid: kept for uid, kept in self._kept.items() if uid in uids}
        fleets = (
            Fleet(namespace, tuple(sorted(of[0], key=lambda c: c.age_key)), of[1])
            for namespace, of in sorted(found.items())
        )
        return Look(tuple(fleets), unreadable)

    def _claims(self) -> tuple[list[Claim], tuple[str, ...]]:
        claims: list[Claim] = []
        unreadable: list[str] = []
        for body in self._world.claims.values():
            try:
                claims.append(self._world.claim_of(body))
            except UnreadableClaim as error:
                key = names.claim_key(body["metadata"].get("namespace", ""), body["metadata"].get("name", "?"))
                unreadable.append(f"{key}: {error}")
        return claims, tuple(sorted(unreadable))

    def _pods(self, claims: list[Claim]) -> list[Pod]:
        """Pods with the pool label, and those that lost it and still have an instance; each with its pool."""
        seated = {(c.namespace, i.pod) for c in claims for i in c.status.instances}
        pools = self._pools()
        pods = []
        for slim in self._world.pods.values():
            metadata = slim["metadata"]
            if names.POOL_LABEL in metadata["labels"] or (metadata.get("namespace", ""), metadata["name"]) in seated:
                pod = self._world.pod_of(slim)
                pods.append(dataclasses.replace(pod, pool=pools.get(pod.owner_uid)))
        return pods

    def _pools(self) -> dict[str, Pool]:
        """UID of a ReplicaSet → the pool of the Deployment that controls it."""
        deployments = {d["metadata"]["uid"]: d for d in self._world.deployments.values()}
        return {
            r["metadata"]["uid"]: self._world.pool_of(deployments[r["owner"]])
            for r in self._world.replica_sets.values()
            if r["owner"] in deployments
        }

    async def _read(self, pod: Pod) -> Pod:
        if not pod.is_running:
            return pod
        reader = self._world.readers.get(pod.uid)
        reading = await self._ask(pod) if reader is None else reader.reading
        now_s = self._world.monotonic_s()
        if reading.snapshot is not None:
            self._kept[pod.uid] = now_s, reading
        elif reading.is_pending and pod.uid in self._kept:
            since_s, kept = self._kept[pod.uid]
            reading = kept if now_s < since_s + KEPT_S else reading
        return dataclasses.replace(pod, reading=reading)

    async def _ask(self, pod: Pod) -> Reading:
        """Read a runtime that no reader of the operator reads. Its silence is not held against it."""
        try:
            # The turn is taken outside of the timeout: a Pod does not fall silent because others do.
            async with self._turns, asyncio.timeout(READ_S):
                outcome = await self._world.runtimes.snapshot(base_url(pod.ip))
        except TimeoutError:
            return Reading(1, error=f"runtime of {pod.name} did not answer within {READ_S:g} s")
        return Reading(1, outcome.answer) if isinstance(outcome, Done) else Reading(1, error=outcome.message)

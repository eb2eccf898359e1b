"""The API server as one candidate's election reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from aibrix_operator.cluster.resource import Object, Resource
from aibrix_operator.sim.store import Store


class Candidate(Protocol):
    """A process that stands for election."""

    is_cut_off: bool
    """Nothing of what it sends for the Lease arrives, and nobody says so."""

    @property
    def store(self) -> Store: ...


class Leases:
    """The calls that an elector makes."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """As ``Cluster.get``."""
        await self._reach()
        return self._candidate.store.get(resource, (namespace or "", name))

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object:
        """As ``Cluster.create``."""
        await self._reach()
        return self._candidate.store.add(resource, body)

    async def replace(self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any]) -> Object:
        """As ``Cluster.replace``."""
        await self._reach()
        return self._candidate.store.replace(resource, body)

    async def _reach(self) -> None:
        if self._candidate.is_cut_off:
            await asyncio.get_running_loop().create_future()  # the elector's own deadline ends it

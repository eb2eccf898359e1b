"""What the operator process asks of a controller, and a controller of the process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry

from aibrix_operator.cluster.resource import Object, Resource
from aibrix_operator.cluster.watch import Change


class Feed(Protocol):
    """Takes what the API server tells of one of our own kinds. It runs in the loop and only notes and wakes."""

    def changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        """An event. The first word of an object may come as MODIFIED, and ``old`` may be missing."""
        ...

    def listed(self, objects: Collection[Object], version: int) -> None:
        """All objects at ``version``. What the list lacks and is no younger than it is gone."""
        ...


class Controller(Protocol):
    """One controller of the process. Every replica keeps it informed; between ``begin`` and ``end`` it acts."""

    @property
    def name(self) -> str:
        """For logs."""
        ...

    @property
    def own(self) -> Mapping[Resource, Feed]:
        """Our own kinds that it follows. Where the cluster lacks one, it hears of no object until it is installed."""
        ...

    @property
    def metrics(self) -> Sequence[CollectorRegistry]:
        """What it counts. Registries that are shared are served once."""
        ...

    async def begin(self) -> None:
        """A term begins. Objects of its own kinds have been listed anew; memory and readings begin afresh."""
        ...

    async def end(self, grace_s: float) -> None:
        """The term is over: no more passes, and steps under way may finish for ``grace_s``. Again is fine."""
        ...

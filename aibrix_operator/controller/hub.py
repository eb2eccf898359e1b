"""What all kinds with a pass per object share in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram

from aibrix_operator.cluster.events import EventRecorder
from aibrix_operator.cluster.resource import Object, Resource
from aibrix_operator.controller.cache import Caches
from aibrix_operator.controller.leading import Writer

PREFIX = "aibrix_controller"


class Reader(Protocol):
    """The calls of ``cluster.client.Cluster`` that read past the caches."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object: ...

    async def list_all(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = ""
    ) -> tuple[list[Object], str]: ...


class Metrics:
    """Of all kinds, told apart by their name."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.pass_seconds = Histogram(
            f"{PREFIX}_pass_duration_seconds", "One pass over one object.", ("kind",), registry=self.registry
        )
        self.writes = Counter(
            f"{PREFIX}_writes",
            "Writes asked of the API server: done, refused, conflict or failed.",
            ("kind", "verb", "resource", "result"),
            registry=self.registry,
        )


def _wall() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Hub:
    """Made once per process."""

    writer: Writer
    """It refuses while this replica does not lead."""
    reader: Reader
    recorder: EventRecorder
    namespace: str | None = None
    """None: all namespaces."""
    caches: Caches = field(default_factory=Caches)
    metrics: Metrics = field(default_factory=Metrics)
    wall: Callable[[], datetime] = _wall

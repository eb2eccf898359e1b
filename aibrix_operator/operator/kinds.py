"""Which controllers the operator process hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.events import EventRecorder
from aibrix_operator.cluster.watch import Watch
from aibrix_operator.controller.controller import Controller
from aibrix_operator.controller.leading import Writer
from aibrix_operator.modelclaim import reconcile
from aibrix_operator.modelclaim.controller import ModelClaimController
from aibrix_operator.modelclaim.world import World
from aibrix_operator.runtime_api.client import RuntimeClient


@dataclass(frozen=True, slots=True)
class Parts:
    """What a process gives its controllers."""

    cluster: Cluster
    """For reading."""
    writer: Writer
    """For writing: it refuses while this replica does not lead."""
    runtimes: RuntimeClient
    recorder: EventRecorder
    namespace: str | None
    """None: all namespaces."""


def host(parts: Parts) -> tuple[Sequence[Controller], Sequence[Watch]]:
    """All controllers, and the watches of other kinds that fill their caches."""
    world = World(parts.writer, parts.runtimes, parts.recorder, lambda: datetime.now(UTC))
    reconcile.attach(world)
    claims = ModelClaimController(world)
    return [claims], claims.watches(parts.cluster, parts.namespace)

"""Which controllers the operator process hosts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.events import EventRecorder
from aibrix_operator.cluster.watch import Watch
from aibrix_operator.controller.cache import Cache
from aibrix_operator.controller.controller import Controller
from aibrix_operator.controller.hub import Hub
from aibrix_operator.controller.keyed import KeyedController
from aibrix_operator.controller.leading import Writer
from aibrix_operator.modeladapter.controller import ModelAdapterController
from aibrix_operator.modeladapter.engines import Engines
from aibrix_operator.modeladapter.kind import ModelAdapters
from aibrix_operator.modelclaim import reconcile
from aibrix_operator.modelclaim.controller import ModelClaimController
from aibrix_operator.modelclaim.world import World
from aibrix_operator.modelwarmup.kind import ModelWarmups
from aibrix_operator.runtime_api.client import RuntimeClient
from aibrix_operator.stormservice import kinds as stormservice

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """What the command line says about ModelAdapters."""

    policy: Policy = Policy.LEAST_ADAPTERS
    uses_sidecar: bool = False
    """Pods that have a runtime sidecar are called through it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a process gives its controllers."""

    cluster: Cluster
    """For reading."""
    writer: Writer
    """For writing: it refuses while this replica does not lead."""
    runtimes: RuntimeClient
    engines: Engines
    """For calls about adapters."""
    recorder: EventRecorder
    namespace: str | None
    """None: all namespaces."""
    adapters: AdapterSettings = AdapterSettings()


@dataclass(frozen=True, slots=True)
class Hosted:
    """What runs in one process."""

    controllers: Sequence[Controller]
    watches: Sequence[Watch]
    """Of other kinds; they fill the caches of the controllers."""
    optional: Sequence[Watch]
    """The same, of kinds that a cluster may lack: nothing waits for them."""


def host(parts: Parts) -> Hosted:
    """All controllers."""
    world = World(parts.writer, parts.runtimes, parts.recorder, lambda: datetime.now(UTC))
    reconcile.attach(world)
    claims = ModelClaimController(world)
    hub = Hub(parts.writer, parts.cluster, parts.recorder, parts.namespace)
    adapters = ModelAdapters(hub, parts.engines, parts.adapters.policy, uses_sidecar=parts.adapters.uses_sidecar)
    keyed: list[Controller] = [*stormservice.controllers(hub), ModelAdapterController(adapters, hub)]
    if parts.namespace is None:
        keyed.append(KeyedController(ModelWarmups(hub), hub))
    else:
        log.info("an operator of one namespace leaves ModelWarmups alone: they are about nodes, which are everybody's")
    caches = hub.caches.watched
    return Hosted(
        [claims, *keyed],
        [
            *claims.watches(parts.cluster, parts.namespace),
            *(_watch(cache, parts) for cache in caches if not cache.selection.is_optional),
        ],
        [_watch(cache, parts) for cache in caches if cache.selection.is_optional],
    )


def _watch(cache: Cache, parts: Parts) -> Watch:
    selection = cache.selection
    return Watch(
        parts.cluster,
        selection.resource,
        namespace=parts.namespace if selection.is_namespaced else None,
        label_selector=selection.label_selector,
        slim=selection.slim,
        on_event=cache.changed,
        on_list=cache.listed,
    )

"""Keeps the view's models as the cluster has them: Pods, claims and adapters, each by one list and one watch.

What was known stays valid while the API server is away. Nothing here waits for it, and afterwards a watch goes on from
where it was; where it cannot, one list heals it, at a moment of its own within ``RELIST_SPREAD_S``.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.backoff import Backoff
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import MODEL_ADAPTERS, MODEL_CLAIMS, PODS, Object, Resource, key_of
from aibrix_operator.cluster.watch import Change, Watch
from aibrix_operator.gateway import facts
from aibrix_operator.gateway.modeling import Catalogue, Key, ModelChange, ParseConfig
from aibrix_operator.gateway.view import View

log = logging.getLogger(__name__)

RELIST_SPREAD_S = 10.0
"""The window over which replicas and kinds send their lists when all watches have to begin anew."""
_MOMENTS = {PODS.plural: 0.0, MODEL_CLAIMS.plural: 0.5, MODEL_ADAPTERS.plural: 0.25}
"""Where in the window a kind's list comes, from where the replica's own begins. Half a window lies between the two that
every cluster has, so that one replica's lists are never close, however its watches' retries fall."""
_BACKOFF = Backoff(initial_s=0.5, max_s=8, jitter=0.5)
_LOOK_FOR_KIND_S = 60.0

OnChange: TypeAlias = Callable[[ModelChange], None]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which Pods and claims a gateway serves."""

    namespace: str | None = None
    """None: all."""
    pod_selector: str = ""
    """A label selector. Without one, every Pod of the cluster is listed once at start, and most are let go again."""


class Watching:
    """Feeds ``view.models``. Everything happens in the event loop, between two decisions."""

    def __init__(self, cluster: Cluster, view: View, parse_config: ParseConfig, scope: Scope = Scope()) -> None:
        self.on_change: list[OnChange] = []
        """Told of each model that is another one now, after the view has it."""
        self.on_pod_gone: list[Callable[[str], None]] = []
        """Told the UID of a Pod that is gone, or speaks of no model any more."""
        self.on_engine_ended: list[Callable[[str, str], None]] = []
        """Told model and incarnation of an engine that serves the model no more: it has lost its cache."""
        self._cluster = cluster
        self._view = view
        self._scope = scope
        self._catalogue = Catalogue(view.models, parse_config)
        self._is_refreshing = False
        self._window_s = random.uniform(0, RELIST_SPREAD_S)
        claims = partial(_take, self._catalogue.set_claim, self._refresh_soon)
        adapters = partial(_take, self._catalogue.set_adapter, self._refresh_soon)
        pods = partial(_take, self._catalogue.set_pod, self._refresh_soon, gone=self._pod_gone)
        self._pods = self._watch(
            PODS, facts.parse_pod, pods, keeps=facts.says_something, label_selector=scope.pod_selector
        )
        # A cluster need not serve these kinds: AIBrix's are installed one by one.
        self._kinds = [
            _Kind(self._watch(MODEL_CLAIMS, facts.parse_claim, claims)),
            _Kind(self._watch(MODEL_ADAPTERS, facts.parse_adapter, adapters)),
        ]

    def _watch(self, resource: Resource, read: Callable[[Object], Any], on_event: Any, **narrowed: Any) -> Watch:
        return Watch(
            self._cluster,
            resource,
            namespace=self._scope.namespace,
            on_event=on_event,
            slim=partial(_slim, read),
            backoff=_BACKOFF,
            relist_delay_s=lambda: until_list_s(resource, self._window_s, asyncio.get_running_loop().time()),
            **narrowed,
        )

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run(), name="watch of pods")
            for kind in self._kinds:
                group.create_task(self._follow(kind), name=f"watch of {kind.watch.resource.plural}")
            group.create_task(self._tell_synced(), name="first lists")

    @property
    def watches(self) -> Sequence[Watch]:
        """Those of kinds that are served, as far as is known."""
        return [self._pods, *(kind.watch for kind in self._kinds if not kind.is_absent)]

    async def _follow(self, kind: _Kind) -> None:
        while not await self._is_served(kind.watch.resource):
            kind.is_absent = True
            kind.is_known.set()
            await asyncio.sleep(_LOOK_FOR_KIND_S)
        kind.is_absent = False
        async with asyncio.TaskGroup() as group:
            group.create_task(kind.watch.run())
            await kind.watch.synced.wait()
            kind.is_known.set()

    async def _is_served(self, resource: Resource) -> bool:
        """Whether the API server has the kind; asks until it says so or not."""
        failures = 0
        while True:
            try:
                async for _ in self._cluster.pages(resource, self._scope.namespace, limit=1):
                    return True
            except errors.NotFound:
                return False
            except errors.ClusterError as error:
                failures += 1
                log.warning("%s", error)
                await asyncio.sleep(_BACKOFF.delay_s(failures))

    async def _tell_synced(self) -> None:
        await self._pods.synced.wait()
        for kind in self._kinds:
            await kind.is_known.wait()
        self._refresh()
        self._view.is_synced = True
        log.info("first lists are in: %d models", len(self._view.models))

    # --- models

    def _pod_gone(self, old: Object) -> None:
        for listener in self.on_pod_gone:
            listener(old["metadata"]["uid"])

    def _refresh_soon(self) -> None:
        """Once for all events that one read brought: a list of a model's thousand Pods makes it once."""
        if not self._is_refreshing:
            self._is_refreshing = True
            asyncio.get_running_loop().call_soon(self._refresh)

    def _refresh(self) -> None:
        self._is_refreshing = False
        for change in self._catalogue.refresh():
            if change.new is None:
                self._view.loads.drop(change.name)
                self._view.token_sizes.drop(change.name)
            for listener in self.on_change:
                listener(change)
        for model, incarnation in self._catalogue.take_ended():
            for heard in self.on_engine_ended:
                heard(model, incarnation)


class _Kind:
    """A kind that may be missing in the cluster."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.is_absent = False
        self.is_known = asyncio.Event()
        """It is not served, or its first list is in."""


def until_list_s(resource: Resource, window_s: float, now_s: float) -> float:
    """How long a list of the kind waits: its moment comes once every ``RELIST_SPREAD_S``, counted from ``window_s``."""
    return (window_s + _MOMENTS[resource.plural] * RELIST_SPREAD_S - now_s) % RELIST_SPREAD_S


def _slim(read: Callable[[Object], Any], obj: Object) -> Object:
    """The object's facts, with what a watch itself needs of it."""
    metadata = obj["metadata"]
    identity = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in metadata}
    return {"metadata": identity, "facts": read(obj)}


def _nothing_else(old: Object) -> None:
    """Of kinds whose end concerns their models alone."""


def _take(
    put: Callable[[Key, Any], None],
    done: Callable[[], None],
    change: Change,
    old: Object | None,
    new: Object | None,
    *,
    gone: Callable[[Object], None] = _nothing_else,
) -> None:
    """An ``OnEvent``."""
    obj = new or old
    assert obj is not None, "the watch gives the old object, the new one, or both"
    put(key_of(obj), new["facts"] if new is not None else None)
    if new is None:
        gone(obj)
    done()


class ListAges(Collector):
    """How old the gateway's knowledge of the cluster is."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect before the first list, and so nothing at registration."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """One sample a kind."""
        age = GaugeMetricFamily("aibrix_gateway_list_age_seconds", "Since the last complete list.", labels=("kind",))
        silence = GaugeMetricFamily(
            "aibrix_gateway_watch_silence_seconds", "Since the API server last said anything.", labels=("kind",)
        )
        lists = CounterMetricFamily("aibrix_gateway_lists", "Complete lists since the start.", labels=("kind",))
        for watch in self._watching.watches:
            kind = (watch.resource.plural,)
            lists.add_metric(kind, watch.lists)
            for family, seconds in ((age, watch.list_age_s()), (silence, watch.silence_s())):
                if seconds is not None:
                    family.add_metric(kind, seconds)
        return (age, silence, lists)

"""The operator process: connects, fills the caches, stands for election, runs kopf, and stops between steps.

It hosts the controllers of all kinds (``kinds.py``). Passes and steps are the leading replica's alone (``terms.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import aiohttp
import kopf

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.events import EventRecorder
from aibrix_operator.cluster.lease import LeaseSettings
from aibrix_operator.cluster.lease_thread import ElectionThread
from aibrix_operator.cluster.resource import Resource
from aibrix_operator.controller.controller import Controller, Feed
from aibrix_operator.controller.leading import LeadersWriter, fence
from aibrix_operator.modeladapter.engines import HttpEngines
from aibrix_operator.operator import handlers, kinds
from aibrix_operator.operator.own_kinds import OwnKinds
from aibrix_operator.operator.probes import Probes
from aibrix_operator.operator.terms import Terms
from aibrix_operator.runtime_api.client import RuntimeClient

log = logging.getLogger(__name__)

STOP_GRACE_S = 10.0
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    lease: LeaseSettings
    kubeconfig: Path | None = None
    """None: the cluster that the process runs in."""
    namespace: str | None = None
    """None: all namespaces."""
    runtime_token_file: Path | None = None
    """A file with the bearer token that runtimes ask for."""
    liveness_endpoint: str | None = None
    """Such as ``http://0.0.0.0:8081/healthz``, with ``/readyz`` beside it; None: no server for probes."""
    adapters: kinds.AdapterSettings = field(default_factory=kinds.AdapterSettings)


class Server(Protocol):
    """Something else that the process serves, such as its page."""

    async def start(self) -> None:
        """Serve. OSError when the address is taken."""
        ...

    async def stop(self) -> None:
        """Stop serving; again is fine."""
        ...


Servers: TypeAlias = Callable[[Sequence[Controller]], Sequence[Server]]


async def serve(settings: Settings, beside: Servers = lambda _: ()) -> None:
    """Run until SIGTERM or SIGINT. Steps under way are finished, for at most ``STOP_GRACE_S``.

    ``beside``: what else is served, over what the controllers know, from the start to the end of the process.
    What fails and cannot go on is raised, and ends the process: it is started again, and another leads meanwhile.
    """
    token = settings.runtime_token_file.read_text().strip() if settings.runtime_token_file else None
    connector = aiohttp.TCPConnector(limit=0, limit_per_host=4)
    async with (
        await Cluster.connect(settings.kubeconfig) as cluster,
        aiohttp.ClientSession(connector=connector) as session,
        # An engine that takes its time over ten adapters must still be able to tell what it has.
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as engine_session,
    ):
        connect = partial(Cluster.connect, settings.kubeconfig, max_connections=2)
        elector = ElectionThread(connect, settings.lease, _identity())
        recorder = EventRecorder(cluster, component="aibrix-operator", instance=socket.gethostname())
        runtimes = RuntimeClient(session, token, partial(fence, elector))
        engines = HttpEngines(engine_session, token)
        writer = LeadersWriter(cluster, elector)
        parts = kinds.Parts(cluster, writer, runtimes, engines, recorder, settings.namespace, settings.adapters)
        hosted = kinds.host(parts)
        replica = _Replica(parts, elector, hosted, beside(hosted.controllers), settings)
        await replica.start()
        try:
            await _run_kopf(replica)
        finally:
            await replica.stop()
        replica.raise_failure()


def own_namespace() -> str | None:
    """The namespace of the Pod that this process runs in; None outside of a cluster."""
    try:
        return _NAMESPACE_FILE.read_text().strip() or None
    except OSError:
        return None


def _identity() -> str:
    """This process's alone: one that is started again in the same place is another candidate."""
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"


def feeds_of(controllers: Sequence[Controller]) -> dict[Resource, list[Feed]]:
    """Own kind → the feeds that are told of it. Controllers that share a cache name the same feed, told once."""
    feeds: dict[Resource, list[Feed]] = {}
    for controller in controllers:
        for resource, feed in controller.own.items():
            told = feeds.setdefault(resource, [])
            if not any(feed is one for one in told):
                told.append(feed)
    return feeds


class _Replica:
    """What runs beside kopf: the watches, the election, the probes and whatever else is served."""

    def __init__(
        self,
        parts: kinds.Parts,
        elector: ElectionThread,
        hosted: kinds.Hosted,
        servers: Sequence[Server],
        settings: Settings,
    ) -> None:
        controllers = hosted.controllers
        self.settings = settings
        self.is_to_end = asyncio.Event()
        """Something failed that nothing else can make up for."""
        self.own = OwnKinds(parts.cluster, settings.namespace, feeds_of(controllers))
        self._recorder = parts.recorder
        self._elector = elector
        self._hosted = hosted
        self._synced = asyncio.Event()
        self._terms = Terms(controllers, self.own.list_anew, self._watch_over)
        self._background: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._servers = list(servers)
        if settings.liveness_endpoint is not None:
            registries = [registry for controller in controllers for registry in controller.metrics]
            probes = Probes(
                settings.liveness_endpoint,
                self._synced.is_set,
                lambda: elector.is_leader,
                registries,
                lambda: self.own.missing,
            )
            self._servers.insert(0, probes)

    async def start(self) -> None:
        """Begin to fill the caches, and to take part in the election once they are full."""
        self._recorder.start()
        for server in self._servers:
            await server.start()
        for watch in self._hosted.watches:
            self._run(watch.run(), f"watch of {watch.resource.plural}")
        for watch in self._hosted.optional:
            self._run(self.own.run_once_installed(watch), f"watch of {watch.resource.plural}")
        for resource in self.own.feeds:
            self._run(self.own.follow(resource), f"list of {resource.plural}")
        self._run(self._fill(), "first lists")
        self._run(self._elect(), "election")

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._watch_over(task)
        self._background.append(task)
        return task

    def _watch_over(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed, so this replica ends", task.get_name(), exc_info=error)
            self._failure = self._failure or error
            self.is_to_end.set()

    async def _fill(self) -> None:
        await self.own.wait_until_listed()
        for watch in self._hosted.watches:
            await watch.synced.wait()
        self._synced.set()

    async def _elect(self) -> None:
        await self._synced.wait()  # who is not ready to take over at once does not stand
        await self._elector.run(self._terms.begin, self._terms.end)

    async def stop(self) -> None:
        """End between steps, give the lease back, write the last Events. Again is fine."""
        if not self._background:
            return
        await self._terms.close(STOP_GRACE_S)  # the election still renews meanwhile
        background, self._background = self._background, []
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)  # the election's end gives the Lease back
        with contextlib.suppress(errors.ClusterError):  # Events are told if they can be
            await self._recorder.stop(2.0)
        for server in self._servers:
            await server.stop()
        self.is_to_end.set()  # kopf's own task that waits for it would be waited for

    def raise_failure(self) -> None:
        """Raise what made the replica end, if anything did."""
        if self._failure is not None:
            raise self._failure


async def _run_kopf(replica: _Replica) -> None:
    settings = replica.settings
    registry = kopf.OperatorRegistry()
    handlers.register(registry, replica.own.feeds)

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    # In here, and not after kopf: at its end it waits 5 s for every task in the loop, and then cancels it.
    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await replica.stop()

    kopf_settings = kopf.OperatorSettings()
    kopf_settings.persistence.diffbase_storage = handlers.NoDifferences()
    kopf_settings.posting.enabled = False  # Events are the recorder's, of the object's own story
    kopf_settings.scanning.disabled = settings.namespace is not None  # no cluster-wide rights are needed then
    await kopf.operator(
        registry=registry,
        settings=kopf_settings,
        standalone=True,
        clusterwide=settings.namespace is None,
        namespaces=[settings.namespace] if settings.namespace else [],
        stop_flag=replica.is_to_end,
    )

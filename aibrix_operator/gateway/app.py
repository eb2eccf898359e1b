"""Puts one gateway together and runs it: our process and its Envoy are one replica, and end together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, Final

import aiohttp

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.gateway import api_server, profiles
from aibrix_operator.gateway.backing import Backing
from aibrix_operator.gateway.decide import Settings
from aibrix_operator.gateway.deciding_exchange import DecidingExchange, ExchangeSettings, Parts
from aibrix_operator.gateway.envoy import running
from aibrix_operator.gateway.envoy.process import ProcessOptions
from aibrix_operator.gateway.keys import KeyFileError, Keys
from aibrix_operator.gateway.knobs import Knobs
from aibrix_operator.gateway.leases import RENEWALS_MISSED, Leases
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.metrics import Metrics
from aibrix_operator.gateway.modeling import ModelChange
from aibrix_operator.gateway.options import Options
from aibrix_operator.gateway.prefix_metrics import PrefixPage
from aibrix_operator.gateway.scraping import Readings, Scraper
from aibrix_operator.gateway.settlement import LogEntry
from aibrix_operator.gateway.settling import Settling
from aibrix_operator.gateway.sharing import Sharing
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.view import Model, View
from aibrix_operator.gateway.waiting_room import WaitingRoom
from aibrix_operator.gateway.waking import Waker
from aibrix_operator.gateway.watching import ListAges, Watching
from aibrix_operator.runtime_api.client import RuntimeClient
from aibrix_operator.statesync.sync import StatesyncNeedsRedis

log = logging.getLogger(__name__)

SWEEP_S: Final = 1.0


class GatewayError(Exception):
    """The gateway cannot start; the text says why and what to do."""


class SteadyClock:
    """Unix seconds that never go back: leases and limits are counted by it, so that both can be told one time.

    The wall clock is read once; a step of it later on would end leases early, or never.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset_s + time.monotonic()


async def serve(options: Options) -> None:
    """Run until SIGTERM or SIGINT, and then let requests finish for ``options.grace_s``.

    What fails and cannot go on, Envoy's end included, is raised, and ends the process.
    """
    stopping = _on_signals()
    with tempfile.TemporaryDirectory(prefix="aibrix-gateway-") as folder:
        caller = f"gateway {options.name}"
        async with _session() as session, await Cluster.connect(options.kubeconfig, caller=caller) as cluster:
            replica = Replica(options, cluster, session)
            async with replica.running(Path(folder)):
                await replica.until(stopping)
                replica.is_stopping = True
                log.info("stopping; requests may go on for %.0f s", options.grace_s)


class Replica:
    """Everything of one gateway beside Envoy."""

    def __init__(self, options: Options, cluster: Cluster, session: aiohttp.ClientSession) -> None:
        self.options = options
        self.clock = SteadyClock()
        self.is_stopping = False
        knobs = Knobs.from_env(os.environ)
        loads = Loads()
        self.readings = Readings()
        self.view = View(loads, metrics=self.readings)
        self.metrics = Metrics(
            lambda: self.view.models,
            options.name,
            by_pod=options.metrics_by_pod,
            slow_first_token_s=options.slow_first_token_s,
        )
        self.registry = self.metrics.registry
        try:
            self.backing = Backing(options, self.registry, loads, clock=self.clock)
        except ValueError as error:
            raise GatewayError(f"the URL of Redis can't be used: {error}") from error
        try:
            self.sharing = Sharing(options.redis_url, self.view.models, self.registry, os.environ, self.clock)
        except StatesyncNeedsRedis as error:
            raise GatewayError(str(error)) from error
        self.registry.register(PrefixPage(self.sharing.prefixes.figures, lambda: self.view.models))
        self.leases = Leases(loads, options.envoy.renew_interval_s * RENEWALS_MISSED)
        self.settling = Settling(self.leases, self.backing.limiter, self.metrics, self.view.token_sizes)
        self.room = WaitingRoom(options.envoy.timeout_s)
        runtimes = RuntimeClient(session, _token(options.runtime_token_file))
        self.waker = Waker(cluster, runtimes, self.registry, not_asked=self.room.model_changed)
        self.watching = Watching(cluster, self.view, profiles.reader(knobs), options.scope)
        self.watching.on_change.append(self._model_changed)
        self.watching.on_pod_gone.append(self.sharing.pod_gone)
        self.watching.on_engine_ended.append(self.sharing.engine_ended)
        self.registry.register(ListAges(self.watching))
        self.scraper = Scraper(session, self.readings, self.registry, period_s=options.scrape_period_s, wall=self.clock)
        self.keys = _keys(options)
        self.exchange = DecidingExchange(
            Parts(
                view=self.view,
                book=StrategyBook(prefixes=self.sharing.prefixes, pins=self.sharing.pins),
                users=self.backing.users,
                limiter=self.backing.limiter,
                leases=self.leases,
                waker=self.waker,
                room=self.room,
                observer=self.metrics,
                keys=self.keys,
            ),
            ExchangeSettings(Settings(options.default_strategy, knobs), options.default_output_tokens),
            clock=self.clock,
            wall=self.clock,
        )
        self.gateway: running.Gateway | None = None
        self._background: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[None]:
        """All of it, drained at the end of the context. ``folder`` is for Envoy's configuration."""
        options = self.options
        process = ProcessOptions(options.envoy_binary, options.envoy_concurrency)
        app = api_server.create_app(self._sources())
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            # First in and last out: while requests finish, probes are told why this replica is not ready.
            await stack.enter_async_context(api_server.serve(app, options.api.host, options.api.port))
            # Before the watches: it is started by a fork, and they start threads.
            envoy = running.run(
                options.envoy,
                self.exchange,
                self._ended,
                config=options.envoy_config or folder / "envoy.json",
                options=None if options.envoy_config is not None else process,
                grace_s=options.grace_s,
            )
            self.gateway = await stack.enter_async_context(envoy)
            await self.backing.start()
            self.sharing.start()
            self._run(self.watching.run(), "watches")
            self._run(self.scraper.run(), "engine metrics")
            self._run(self._sweep(), "leases")
            log.info("clients are served at %s; health and metrics at %s", options.envoy.listen, options.api)
            yield

    async def until(self, stopping: asyncio.Event) -> None:
        """Until ``stopping``. Raises what Envoy or a task of ours ended with."""
        assert self.gateway is not None, "running() is open"
        signalled = asyncio.create_task(stopping.wait())
        envoy = asyncio.create_task(self.gateway.ended())
        try:
            await asyncio.wait([signalled, envoy, *self._background], return_when=asyncio.FIRST_COMPLETED)
            for task in (envoy, *self._background):
                if task.done():
                    task.result()
        finally:
            signalled.cancel()
            envoy.cancel()

    async def _close(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.waker.close()
        await self.sharing.close()
        await self.backing.close()

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._background.append(asyncio.get_running_loop().create_task(work, name=name))

    # --- what happens

    def _ended(self, entry: LogEntry) -> None:
        self.settling.take((entry,), self.clock())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.settling.sweep(self.clock())

    def _model_changed(self, change: ModelChange) -> None:
        self.room.model_changed(change.name)
        if change.new is not None and (change.old is None or change.old.config is not change.new.config):
            _warn_of_caps(change.new)
        if change.old is not None:
            stay = {endpoint.address for endpoint in change.new.endpoints} if change.new is not None else set()
            for endpoint in change.old.endpoints:
                if endpoint.address not in stay:
                    self.readings.drop(endpoint.address)

    # --- what is told

    def _sources(self) -> api_server.Sources:
        return api_server.Sources(
            view=self.view,
            registry=self.registry,
            problems=self.problems,
            keys=self.keys,
            status={
                "gateway": lambda: {"name": self.options.name, "stopping": self.is_stopping},
                "cluster": self._cluster_status,
                "requests": self._request_status,
                "limits": self.backing.status,
                "learned": self.sharing.status,
            },
        )

    async def problems(self) -> list[str]:
        """What keeps this replica from being ready."""
        found = []
        if self.is_stopping:
            found.append("the gateway is stopping")
        if not self.view.is_synced:
            found.append("the first lists of Pods and claims are not in")
        if self.gateway is None or not await self.gateway.admin.is_ready():
            found.append("Envoy is not ready")
        return [*found, *self.backing.problems()]

    def _cluster_status(self) -> object:
        kinds = {
            watch.resource.plural: {
                "list_age_s": watch.list_age_s(),
                "silence_s": watch.silence_s(),
                "lists": watch.lists,
                "objects": len(watch.objects),
            }
            for watch in self.watching.watches
        }
        return {"synced": self.view.is_synced, "models": len(self.view.models), "kinds": kinds}

    def _request_status(self) -> object:
        asked = self.gateway.questions.waiting if self.gateway is not None else 0
        return {"running": len(self.leases), "held": len(self.room), "being_decided": asked}


def _warn_of_caps(model: Model) -> None:
    """Both limits hold as they are written. Who wrote them may have meant something else."""
    for profile in model.config.profiles.values() if model.config is not None else ():
        if profile.cap_is_below_rate:
            log.warning(
                "model %s, profile %s: requestsInflight %s is below requestsPerSecondPerReplica %g; the cap may refuse"
                " what the rate would grant",
                *(model.name, profile.name, profile.requests_inflight, profile.requests_per_second_per_replica),
            )


def _on_signals() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second ends the process as if nobody listened."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopping


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, limit_per_host=4))


def _token(file: Path | None) -> str | None:
    return None if file is None else file.read_text().strip()


def _keys(options: Options) -> Keys | None:
    """Of both files; None without either."""
    if options.key_file is not None and options.keys_file is not None:
        raise GatewayError("one key for everybody and keys that name their users exclude each other")
    try:
        if options.keys_file is not None:
            return Keys.parse(options.keys_file.read_text())
        if options.key_file is not None:
            key = options.key_file.read_text().strip()
            if not key:
                raise KeyFileError("it is empty: nobody could ask")
            return Keys({key: None})
    except (OSError, KeyFileError) as error:
        raise GatewayError(f"{options.keys_file or options.key_file}: {error}") from error
    return None

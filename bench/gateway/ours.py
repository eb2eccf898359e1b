"""Our gateway over engines that are named, without a cluster: ``python -m bench.gateway.ours --port P PORT…``.

Everything is the product's but the view, which here is written once. ``--envoy-alone`` starts the same Envoy with a
configuration that asks nobody, which is what there is to be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.decide import Settings
from aibrix_operator.gateway.deciding_exchange import DecidingExchange, ExchangeSettings, Parts
from aibrix_operator.gateway.envoy import process, running
from aibrix_operator.gateway.envoy.admin import Admin
from aibrix_operator.gateway.envoy.process import ProcessOptions
from aibrix_operator.gateway.envoy.settings import EnvoySettings
from aibrix_operator.gateway.leases import Leases
from aibrix_operator.gateway.limits.limiter import Limiter, User
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.limits.redis import RedisLimiter
from aibrix_operator.gateway.limits.running import RunningCounts
from aibrix_operator.gateway.limits.store import Store
from aibrix_operator.gateway.limits.users import Mode, Policy, Users
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.metrics import Metrics
from aibrix_operator.gateway.profiles import ModelConfig, Profile
from aibrix_operator.gateway.settlement import LogEntry
from aibrix_operator.gateway.settling import Settling
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.view import Endpoint, Model, View, WakeTarget
from aibrix_operator.gateway.waiting_room import WaitingRoom
from aibrix_operator.sandbox.control_plane import free_port
from bench.gateway.redis_server import redis_server

MODELS = 1000
"""Known to the gateway; one of them is asked."""
_NO_LIMIT = 10**9


class Limits(StrEnum):
    """Where limits are kept. They are never reached: what is measured is keeping them."""

    NONE = "none"
    MEMORY = "memory"
    REDIS = "redis"


class _NobodySleeps:
    def wake(self, target: WakeTarget) -> None:
        raise AssertionError(f"{target.model} is awake")


class _OneUser:
    def get(self, name: str) -> User | None:
        return User(name, rpm=_NO_LIMIT, tpm=_NO_LIMIT)


def main(
    engines: Annotated[list[int], typer.Argument(help="Ports of the engines, on loopback.")],
    port: Annotated[int, typer.Option(help="Where clients come.")],
    limits: Annotated[Limits, typer.Option(help="User and model limits that are counted, and never reached.")] = (
        Limits.NONE
    ),
    envoy_alone: Annotated[bool, typer.Option("--envoy-alone", help="Ask nobody, and send round robin.")] = False,
    concurrency: Annotated[int | None, typer.Option(help="Envoy's worker threads; by default one a core.")] = None,
) -> None:
    """Serve until SIGTERM."""
    with tempfile.TemporaryDirectory(prefix="bench-gateway-") as folder:
        serving = _alone(engines, port, concurrency, Path(folder))
        if not envoy_alone:
            serving = _ours(engines, port, limits, concurrency, Path(folder))
        uvloop.run(_until_signalled(serving))


async def _until_signalled(serving: contextlib.AbstractAsyncContextManager[None]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with serving:
        await stop.wait()


@contextlib.asynccontextmanager
async def _ours(
    engines: Sequence[int], port: int, limits: Limits, concurrency: int | None, folder: Path
) -> AsyncIterator[None]:
    loads = Loads()
    view = View(loads, is_synced=True)
    for number in range(MODELS):
        name = "m" if number == 0 else f"m-{number}"
        view.models[name] = _model(name, engines, limits)
    metrics = Metrics(lambda: view.models, "bench")
    async with _limiter(limits, loads, folder) as limiter:
        leases = Leases(loads, 60.0)
        parts = Parts(
            view=view,
            book=StrategyBook(),
            users=Users(_OneUser() if limits is not Limits.NONE else None, Mode.OPTIONAL, Policy.LOCAL),
            limiter=limiter,
            leases=leases,
            waker=_NobodySleeps(),
            room=WaitingRoom(600.0),
            observer=metrics,
        )
        exchange = DecidingExchange(parts, ExchangeSettings(Settings("least-request")), clock=time.time, wall=time.time)
        settling = Settling(leases, limiter, metrics, view.token_sizes)

        def ended(entry: LogEntry) -> None:
            settling.take((entry,), time.time())

        settings = EnvoySettings(
            listen=Address("127.0.0.1", port),
            admin=Address("127.0.0.1", free_port()),
            questions=Address(path=str(folder / "questions.sock")),
            reports=Address(path=str(folder / "reports.sock")),
            api=Address("127.0.0.1", free_port()),
        )
        options = ProcessOptions(concurrency=concurrency)
        async with running.run(settings, exchange, ended, config=folder / "envoy.json", options=options):
            yield


def _model(name: str, engines: Sequence[int], limits: Limits) -> Model:
    endpoints = tuple(
        Endpoint(name, "default", f"pod-{number}", f"uid-{number}", f"127.0.0.1:{engine}")
        for number, engine in enumerate(engines)
    )
    config = None
    if limits is not Limits.NONE:
        profile = Profile("default", requests_per_second=_NO_LIMIT, requests_inflight=_NO_LIMIT)
        config = ModelConfig(profiles={"default": profile})
    return Model(name, endpoints, config=config)


@contextlib.asynccontextmanager
async def _limiter(limits: Limits, loads: Loads, folder: Path) -> AsyncIterator[Limiter]:
    if limits is not Limits.REDIS:
        yield MemoryLimiter()
        return
    with redis_server(folder) as url:
        store = Store(url)
        # Closed: a Redis that falls behind shows as errors, and not as the figures of limits in memory.
        limiter = RedisLimiter(store, Policy.CLOSED, "bench:1")
        await store.start()
        exchange = asyncio.create_task(RunningCounts(store, loads, limiter, "bench:1").run())
        try:
            yield limiter
        finally:
            exchange.cancel()
            await asyncio.gather(exchange, return_exceptions=True)
            await store.stop()


@contextlib.asynccontextmanager
async def _alone(engines: Sequence[int], port: int, concurrency: int | None, folder: Path) -> AsyncIterator[None]:
    config = folder / "envoy.json"
    admin = Address("127.0.0.1", free_port())
    config.write_text(json.dumps(_bare_config(engines, port, admin)))
    options = ProcessOptions(concurrency=concurrency)
    envoy = process.launch(config, options)
    try:
        await process.until_ready(envoy, Admin(admin), options)
        yield
    finally:
        await envoy.terminate()


def _bare_config(engines: Sequence[int], port: int, admin: Address) -> dict[str, Any]:
    def address(number: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    most = {"max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}
    network = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    manager = {
        "@type": f"type.googleapis.com/{network}",
        "stat_prefix": "bench",
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    endpoints = [{"endpoint": {"address": address(engine)}} for engine in engines]
    return {
        "admin": {"address": address(admin.port)},
        "static_resources": {
            "listeners": [
                {"address": address(port), "tcp_backlog_size": 4096, "filter_chains": [{"filters": filters}]}
            ],
            "clusters": [
                {
                    "name": "engines",
                    "type": "STATIC",
                    "connect_timeout": "1s",
                    "circuit_breakers": {"thresholds": [most]},
                    "load_assignment": {"cluster_name": "engines", "endpoints": [{"lb_endpoints": endpoints}]},
                }
            ],
        },
    }


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    typer.run(main)

"""The operator's own small HTTP server, which a kubelet asks: is it alive, may it be counted on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, exposition
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

READY_PATH = "/readyz"
METRICS_PATH = "/metrics"
_SHUTDOWN_S = 1.0


class Probes:
    """Answers liveness at the path of ``url``, with ``/readyz`` and ``/metrics`` beside it."""

    def __init__(
        self,
        url: str,
        is_ready: Callable[[], bool],
        is_leader: Callable[[], bool],
        metrics: Iterable[CollectorRegistry],
        missing: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """``url`` is such as ``http://0.0.0.0:8081/healthz``. ValueError for anything else.

        Registries of ``metrics`` that are named twice are served once; ``missing``: kinds that are not installed.
        """
        parts = urlsplit(url)
        if (
            parts.scheme != "http"
            or not parts.hostname
            or not parts.port
            or parts.path in ("", "/", READY_PATH, METRICS_PATH)
        ):
            raise ValueError(f"{url!r} is no address for liveness: give one such as http://0.0.0.0:8081/healthz")
        self._address = parts.hostname, parts.port
        self._is_ready = is_ready
        self._is_leader = is_leader
        self._missing = missing
        self.metrics = CollectorRegistry()
        """The process' own, and all of the others."""
        leading = Gauge("aibrix_operator_leading", "1 while this replica leads.", registry=self.metrics)
        leading.set_function(lambda: float(is_leader()))
        for registry in {id(one): one for one in metrics}.values():
            self.metrics.register(_Within(registry))
        app = web.Application()
        app.router.add_get(parts.path, self._alive)
        app.router.add_get(READY_PATH, self._ready)
        app.router.add_get(METRICS_PATH, self._scraped)
        self._runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=_SHUTDOWN_S)

    async def start(self) -> None:
        """Serve. OSError when the address is taken."""
        await self._runner.setup()
        host, port = self._address
        await web.TCPSite(self._runner, host, port).start()

    async def stop(self) -> None:
        """Stop serving; again is fine."""
        await self._runner.cleanup()

    async def _alive(self, _: web.Request) -> web.Response:
        """That the event loop comes to answer is what is asked."""
        return web.json_response({"status": "ok"})

    async def _ready(self, _: web.Request) -> web.Response:
        """200 once all is listed: before, this replica could not take over at once. Leading or not is no difference."""
        is_ready, missing = self._is_ready(), list(self._missing())
        said: dict[str, object] = {"status": "ready" if is_ready else "not ready", "leader": self._is_leader()}
        if missing:
            said["not_installed"] = missing
        return web.json_response(said, status=200 if is_ready else 503)

    async def _scraped(self, request: web.Request) -> web.Response:
        """The controllers' metrics, of objects also on replicas that do not lead."""
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self.metrics), headers={"Content-Type": content_type})


class _Within(Collector):
    """All that another registry holds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def describe(self) -> Iterable[Metric]:
        """Its names were checked where they were registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()

"""Puts the sidecar together and serves it. The command line calls ``serve``; the OpenAPI document ``create_app``.

A sidecar that ends, however it ends, leaves its engines running: they live in sessions of their own, and the next
sidecar takes them over from the registry.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

import aiohttp
import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError

from aibrix_operator import __version__
from aibrix_operator.runtime import adapter_routes, answers, routes
from aibrix_operator.runtime.adapter_engine import AdapterEngine, EngineAddress
from aibrix_operator.runtime.adapters import Adapters
from aibrix_operator.runtime.bearer import TokenFile, TokenMiddleware
from aibrix_operator.runtime.downloads import Downloads
from aibrix_operator.runtime.fence import StaleTermError
from aibrix_operator.runtime.fleet import Fleet, wall_clock
from aibrix_operator.runtime.settings import RuntimeSettings

SHUTDOWN_GRACE_S = 5
"""How long calls under way may finish when the sidecar is asked to end."""


def create_app(settings: RuntimeSettings, *, clock: Callable[[], datetime] = wall_clock) -> FastAPI:
    """The API of one sidecar. Engines are taken over and supervised while the app's lifespan lasts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            sidecar = routes.Sidecar(Fleet(settings, session, clock=clock))
            app.state.sidecar = sidecar
            app.state.adapters = _adapters(settings, session)
            app.state.downloads = Downloads(settings.download_dir)
            await sidecar.supervisor.adopt()
            tasks = [asyncio.create_task(loop.run()) for loop in (sidecar.supervisor, sidecar.feed)]
            sidecar.is_supervised = True
            try:
                yield
            finally:
                sidecar.is_supervised = False
                await app.state.downloads.close()
                for task in tasks:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):  # it was just cancelled
                        await task

    app = FastAPI(
        title="aibrix-operator runtime",
        version=__version__,
        lifespan=lifespan,
        openapi_url="/openapi.json" if settings.runtime_docs else None,
    )
    app.add_exception_handler(RequestValidationError, answers.unprocessable)
    app.add_exception_handler(StaleTermError, answers.fenced)
    if settings.runtime_token_file is not None:
        app.add_middleware(TokenMiddleware, token_file=TokenFile(settings.runtime_token_file))
    for router in (routes.probes, routes.engines, routes.scrape, adapter_routes.router):
        app.include_router(router)
    return app


def _adapters(settings: RuntimeSettings, session: aiohttp.ClientSession) -> Adapters:
    address = EngineAddress(
        settings.inference_engine_endpoint, settings.inference_engine, settings.inference_engine_api_key
    )
    return Adapters(AdapterEngine(session, address), settings.adapter_dir, settings.adapter_credentials_dir)


class Server(uvicorn.Server):
    """Uvicorn, which would wait for polls of the change feed before it ends."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer who waits for a change, then end."""
        self._app.state.sidecar.feed.close()
        await super().shutdown(sockets)


def serve(settings: RuntimeSettings) -> None:
    """Serve until SIGTERM or SIGINT. Engines stay."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.runtime_host,
        port=settings.runtime_port,
        loop="uvloop",
        http="httptools",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
    )
    Server(config, app).run()

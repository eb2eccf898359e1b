"""All that is between clients and the decision, as one context manager.

>>> async with running.run(EnvoySettings(), exchange, sink, config=folder / "envoy.json") as gateway:
...     await gateway.ended()          # for as long as Envoy runs
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aibrix_operator.gateway import wire
from aibrix_operator.gateway.envoy import config as envoy_config
from aibrix_operator.gateway.envoy import process, reports
from aibrix_operator.gateway.envoy.access_log import Sink
from aibrix_operator.gateway.envoy.admin import Admin
from aibrix_operator.gateway.envoy.process import EnvoyError, ProcessOptions
from aibrix_operator.gateway.envoy.reports import Reports
from aibrix_operator.gateway.envoy.settings import EnvoySettings
from aibrix_operator.gateway.exchange import Exchange

_log = logging.getLogger(__name__)
_POLL_S: Final = 0.05
_LAST_S: Final = 1.0
_LOOK_S: Final = 0.5
_SILENT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway."""

    settings: EnvoySettings
    questions: wire.Server
    reports: Reports
    admin: Admin
    process: process.Process | None
    """None: Envoy runs in a container of its own."""

    async def ended(self) -> None:
        """Wait until Envoy ends, which it does not by itself. EnvoyError then: without Envoy there is no gateway."""
        if self.process is None:
            await self._silent()
            raise EnvoyError(f"Envoy has not answered at {self.settings.admin} for {_SILENT_S:.0f} s")
        status = await self.process.ended()
        raise EnvoyError(f"Envoy ended with status {status}")

    async def _silent(self) -> None:
        """Wait until an Envoy that has been ready once does not answer for a while: its container is seen no closer."""
        answered_s: float | None = None
        while answered_s is None or time.monotonic() - answered_s < _SILENT_S:
            if await self.admin.is_ready():
                answered_s = time.monotonic()
            await asyncio.sleep(_LOOK_S)

    async def drain(self, grace_s: float) -> None:
        """Refuse what is new with 503, and let what runs finish, for ``grace_s`` at most."""
        self.questions.stop_asking()
        await self.admin.drain()
        await self._until_idle(grace_s)
        await self.questions.refuse_waiting()
        await self._until_idle(min(grace_s, _LAST_S))  # what was refused just now is on its way to its client
        await asyncio.sleep(2 * self.settings.log_flush_s)  # and so are the last entries of the log

    async def _until_idle(self, most_s: float) -> None:
        deadline = time.monotonic() + most_s
        while time.monotonic() < deadline and await self.admin.active_requests():  # noqa: ASYNC110 - Envoy's, not ours
            await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def run(
    settings: EnvoySettings,
    exchange: Exchange,
    sink: Sink,
    *,
    config: Path | None = None,
    options: ProcessOptions | None = None,
    grace_s: float = 0.0,
) -> AsyncIterator[Gateway]:
    """Serve Envoy's questions and reports, and Envoy itself, while the context is open; drain at its end.

    With ``config`` Envoy's configuration is written to that file. With ``options`` Envoy is started with it and awaited
    until it is ready; without, it is somebody else's to start. ``sink`` hears how every request ended. EnvoyError when
    Envoy cannot be started.
    """
    admin = Admin(settings.admin)
    limit = max(settings.body_limit_bytes, settings.media_body_limit_bytes)
    if config is not None:
        envoy_config.write_config(settings, config)
    async with AsyncExitStack() as stack:
        envoy: process.Process | None = None
        if options is not None:
            if config is None:
                raise EnvoyError("Envoy can only be started with a file for its configuration")
            envoy = process.launch(config, options)
            stack.push_async_callback(envoy.terminate)
        questions = await stack.enter_async_context(wire.serve(exchange, settings.questions, body_limit_bytes=limit))
        told = await stack.enter_async_context(reports.serve(sink, settings.reports))
        if envoy is not None and options is not None:
            stack.push_async_callback(envoy.terminate)  # before the servers close: it reports to them until it ends
            await process.until_ready(envoy, admin, options)
        gateway = Gateway(settings, questions, told, admin, envoy)
        try:
            yield gateway
        finally:
            if envoy is None or not envoy.has_ended:
                await gateway.drain(grace_s)

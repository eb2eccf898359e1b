"""The fleet of a run: every Pod's runtime, played by the benchmark's own process, with the change feed of ours.

Engines are up at once and never do anything. What a run needs beside: when each call came, engines that fall asleep on
demand and take a while to wake, and runtimes that take a connection and never answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from aibrix_operator.api import names
from aibrix_operator.api.term import TERM_HEADER
from bench.controller import runtimes
from bench.controller.objects import pod_address

WAKING_S = 0.5
"""From the call of ``wake`` until the engine answers its health check."""


class PlayedFleet(runtimes.Fleet):
    """Serves between ``start`` and ``stop``, on a loopback address for each Pod."""

    def __init__(self, pods: int, usable_bytes: int, silent: int = 0) -> None:
        """``pods`` runtimes that answer, and ``silent`` more that never do."""
        super().__init__(pods, usable_bytes)
        self.changes: Counter[str] = Counter()
        """Changing calls by action."""
        self.changed_s = 0.0
        """When the last changing call came."""
        self.read_by: dict[str, set[str]] = defaultdict(set)
        """Term of a leader → addresses that it has read."""
        self.all_read_s: dict[str, float] = {}
        """Term of a leader → when it had read the last Pod that answers."""
        self.woken_s: dict[str, float] = {}
        """Model name → when ``wake`` was called for it last."""
        self.ready_s: dict[str, float] = {}
        """Model name → when it was ready again after that."""
        self._pods = pods
        self._silent = silent
        self._versions: dict[str, int] = defaultdict(int)
        self._moved: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._waking: set[asyncio.Task[None]] = set()
        self._runners: list[web.AppRunner] = []

    async def start(self) -> None:
        """Listen on every Pod's address."""
        runner = web.AppRunner(self.app(), access_log=None)
        await runner.setup()
        self._runners.append(runner)
        for number in range(self._pods):
            await web.TCPSite(runner, pod_address(number), names.RUNTIME_PORT).start()
        silent = web.AppRunner(_silent_app(), access_log=None, shutdown_timeout=0.1)
        await silent.setup()
        self._runners.append(silent)
        for number in range(self._pods, self._pods + self._silent):
            await web.TCPSite(silent, pod_address(number), names.RUNTIME_PORT).start()

    async def stop(self) -> None:
        """Hang up."""
        for task in self._waking:
            task.cancel()
        for runner in self._runners:
            await runner.cleanup()

    def app(self) -> web.Application:
        app = super().app()
        app.router.add_get("/v1/runtime/changes", self._feed)
        app.middlewares.append(self._note)
        return app

    def put_to_sleep(self, address: str, model: str) -> None:
        """As after a call of somebody else: the operator finds it asleep."""
        engine = self._engines[address][model]
        engine.update(phase="sleeping", ready=False, last_transition=runtimes.now(), sleeping_footprint_bytes=1 << 30)
        self._move(address)

    # --- what a runtime does

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Note who asked for what, and tell of changes when they are made."""
        now_s, address = time.monotonic(), _address(request)
        if request.method == "GET":
            if request.path != "/healthz":
                self._note_reading(request, address, now_s)
            answer: web.StreamResponse = await handler(request)
            return answer
        action = request.path.rpartition("/")[2]
        self.changes[action] += 1
        self.changed_s = now_s
        if action == "wake":
            self.woken_s[orjson.loads(await request.read())["model_name"]] = now_s
        answer = await handler(request)
        self._move(address)
        return answer

    def _note_reading(self, request: web.Request, address: str, now_s: float) -> None:
        term = request.headers.get(TERM_HEADER, "")
        readers = self.read_by[term]
        readers.add(address)
        if len(readers) == self._pods:
            self.all_read_s.setdefault(term, now_s)

    def _move(self, address: str) -> None:
        self._versions[address] += 1
        self._moved.pop(address, asyncio.Event()).set()

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        address = _address(request)
        if request.query["since"] == str(self._versions[address] + 1):
            with contextlib.suppress(TimeoutError):  # nothing has changed, and the answer says what is so
                async with asyncio.timeout(float(request.query["timeout"])):
                    await self._moved[address].wait()
        snapshot = self._snapshot_of(address)
        return runtimes.json_answer({"version": str(self._versions[address] + 1), "snapshot": snapshot})

    async def _wake(self, request: web.Request) -> web.Response:
        asked = orjson.loads(await request.read())
        address, model = _address(request), asked["model_name"]
        answer = await self._operation(request, lambda _: {"phase": "booting", "sleeping_footprint_bytes": None})
        task = asyncio.get_running_loop().create_task(self._wake_up(address, model))
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)
        return answer

    async def _wake_up(self, address: str, model: str) -> None:
        await asyncio.sleep(WAKING_S)
        self._engines[address][model].update(phase="active", ready=True, last_transition=runtimes.now())
        self.ready_s[model] = time.monotonic()
        self._move(address)


def _address(request: web.Request) -> str:
    assert request.transport is not None
    address: str = request.transport.get_extra_info("sockname")[0]
    return address


def _silent_app() -> web.Application:
    async def never(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", never)
    return app


async def until(what: str, condition: Callable[[], bool], within_s: float) -> None:
    """Return once ``condition`` holds, which is looked at often; SystemExit after ``within_s``."""
    ends_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > ends_s:
            raise SystemExit(f"{what}: not within {within_s:.0f} s")
        await asyncio.sleep(0.02)

"""SGLang's routes for operators: pause and continue, release and resume of memory, the flush, the generating check.

As in SGLang, a memory call in the wrong state is not refused but ends the engine, and so does generating on memory that
is released.
"""

import asyncio
from collections.abc import Callable
from typing import Never

from aibrix_operator.sim.engine import errors
from aibrix_operator.sim.engine.http import HttpRequest, Response, json_response
from aibrix_operator.sim.engine.serving import Serving

CHECK_GIVES_UP_S = 20.0


class MemoryRelease:
    """The handlers; each answers one route of ``routes``. ``die`` ends the engine's process."""

    def __init__(self, serving: Serving, die: Callable[[Exception], Never]) -> None:
        self._serving = serving
        self._scheduler = serving.scheduler
        self._die = die

    async def server_info(self, _: HttpRequest) -> Response:
        arguments = self._serving.arguments
        return json_response(
            {
                "served_model_name": arguments.name,
                "enable_memory_saver": arguments.memory_saver,
                "enable_weights_cpu_backup": arguments.weights_backup,
                "speculative_algorithm": None,
                "version": "0.5.23",
            }
        )

    async def flush_cache(self, _: HttpRequest) -> Response:
        if self._scheduler.is_idle:
            return Response(b"Cache flushed.\n", content_type="text/plain; charset=utf-8")
        return Response(b"Flush cache failed.\n", status=400, content_type="text/plain; charset=utf-8")

    async def pause(self, http: HttpRequest) -> Response:
        mode = errors.read_body(http, {}, {"mode": errors.STRING}).get("mode", "abort")
        if mode not in ("abort", "in_place"):
            raise errors.bad_parameter("the simulated engine pauses with abort or in_place", "mode", mode)
        await self._scheduler.sleep(0, "keep" if mode == "in_place" else "abort")
        return json_response({"message": "Generation paused successfully.", "status": "ok"})

    async def resume_generation(self, http: HttpRequest) -> Response:
        errors.read_body(http, {}, {"torch_empty_cache": errors.BOOLEAN})
        if not self._scheduler.has_memory:
            self._die(RuntimeError("CUDA error: an illegal memory access was encountered"))
        await self._scheduler.wake(("scheduling",))
        return json_response({"message": "Generation continued successfully.", "status": "ok"})

    async def release(self, http: HttpRequest) -> Response:
        errors.read_body(http, {}, {"tags": errors.LIST})
        if not self._scheduler.is_idle:
            self._die(AssertionError("release_memory_occupation should be called only when server is idle."))
        if not self._scheduler.has_memory:
            self._die(RuntimeError("Cannot pause allocation that is not active."))
        if self._serving.arguments.memory_saver:
            await self._scheduler.sleep(1, "keep")
        return json_response(None)

    async def resume_memory(self, http: HttpRequest) -> Response:
        errors.read_body(http, {}, {"tags": errors.LIST})
        if self._scheduler.has_memory and self._serving.arguments.memory_saver:
            self._die(KeyError("kv_cache"))
        await self._scheduler.wake(("weights", "kv_cache"), resumes=False)
        return json_response(None)

    async def generate_one(self, _: HttpRequest) -> Response:
        """200 once a token could be generated; a paused engine takes no request, so that its check gives up."""
        try:
            async with asyncio.timeout(CHECK_GIVES_UP_S):
                await self._scheduler.until_unpaused()
        except TimeoutError:
            return Response(status=503, content_type=None)
        return Response(content_type=None)

"""vLLM's routes for operators: health, metrics, sleep and wake, LoRA adapters."""

import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Literal, cast

from aibrix_operator.sim.engine import errors
from aibrix_operator.sim.engine.http import HttpRequest, Response, json_response
from aibrix_operator.sim.engine.scheduler import TAGS, Mode
from aibrix_operator.sim.engine.serving import Serving

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_MODES = ("abort", "wait", "keep")


class Control:
    """The handlers; each answers one route of ``routes``."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def health(self, _: HttpRequest) -> Response:
        return Response(content_type=None)

    async def version(self, _: HttpRequest) -> Response:
        return json_response({"version": "0.32.0"})

    async def metrics(self, _: HttpRequest) -> Response:
        gauges, metrics = self._serving.scheduler.gauges(), self._serving.metrics
        is_vllm = self._serving.arguments.kind == "vllm"
        page = metrics.vllm_page(gauges) if is_vllm else metrics.sglang_page(gauges)
        return Response(page.encode(), content_type=_PROMETHEUS)

    async def is_sleeping(self, _: HttpRequest) -> Response:
        return json_response({"is_sleeping": self._serving.scheduler.is_sleeping})

    async def sleep(self, http: HttpRequest) -> Response:
        level, mode = http.query("level", "1"), http.query("mode", "abort")
        if level not in ("0", "1", "2"):
            raise errors.bad_parameter("level must be 0, 1 or 2", "level", level)
        if mode not in _MODES:
            raise errors.bad_parameter(f"mode must be one of {', '.join(_MODES)}", "mode", mode)
        await self._timed("sleep", self._serving.scheduler.sleep(int(level), cast(Mode, mode)))
        return json_response({"status": "sleeping", "level": int(level)})

    async def wake_up(self, http: HttpRequest) -> Response:
        tags = tuple(http.query_all("tags"))
        if unknown := set(tags) - set(TAGS):
            raise errors.bad_parameter(f"tags must be among {', '.join(TAGS)}", "tags", ",".join(sorted(unknown)))
        await self._timed("wake", self._serving.scheduler.wake(tags or None))
        return json_response({"status": "awake", "tags": list(tags) or None})

    async def load_lora(self, http: HttpRequest) -> Response:
        required = {"lora_name": errors.STRING, "lora_path": errors.STRING}
        body = errors.read_body(http, required, {"load_inplace": errors.BOOLEAN})
        name, path = body["lora_name"], body["lora_path"]
        if not self._serving.arguments.enable_lora:
            raise errors.bad_request("LoRA is not enabled. Use --enable-lora to enable LoRA.")
        if not name or not path:
            raise _invalid_input("Both 'lora_name' and 'lora_path' must be provided.")
        if name in self._serving.loras and not body.get("load_inplace"):
            raise _invalid_input(
                f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in place,"
                " set 'load_inplace' to True."
            )
        if not is_adapter(path):
            message = f"Loading lora {name} failed: No adapter found for {path}"
            raise errors.ApiError(404, "NotFoundError", message)
        self._serving.loras[name] = path
        return _text(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload_lora(self, http: HttpRequest) -> Response:
        name = errors.read_body(http, {"lora_name": errors.STRING}, {})["lora_name"]
        if name not in self._serving.loras:
            raise errors.ApiError(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        del self._serving.loras[name]
        return _text(f"Success: LoRA adapter '{name}' removed successfully.")

    async def _timed(self, operation: Literal["sleep", "wake"], work: Awaitable[None]) -> None:
        metrics, started = self._serving.metrics, time.monotonic()
        metrics.sleep_operations_in_flight[operation] += 1
        try:
            await work
        finally:
            metrics.sleep_operations_in_flight[operation] -= 1
            metrics.sleep_operations[operation].observe(time.monotonic() - started)


def is_adapter(path: str) -> bool:
    """Whether an engine would find an adapter: in that folder, or under that name on a hub (taken for granted)."""
    if (Path(path) / "adapter_config.json").is_file():
        return True
    owner, slash, name = path.partition("/")
    return bool(owner and slash and name) and "/" not in name and not Path(path).exists()


def _invalid_input(message: str) -> errors.ApiError:
    return errors.ApiError(400, "InvalidUserInput", message)


def _text(message: str) -> Response:
    return Response(message.encode(), content_type=None)

"""One process that plays the runtime sidecar of every Pod: engines are up at once and never do anything.

Run as ``python -m bench.controller.runtimes PODS USABLE_BYTES``; prints ``ready`` when it listens on all addresses.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import Any

import orjson
import uvloop
from aiohttp import web

from aibrix_operator.api import names
from bench.controller.objects import pod_address

FIRST_ENGINE_PORT = 20_000


class Fleet:
    """The engines of every Pod: address → model name → what a snapshot says of it."""

    def __init__(self, pods: int, usable_bytes: int) -> None:
        self._usable_bytes = usable_bytes
        self._engines: dict[str, dict[str, dict[str, Any]]] = {pod_address(number): {} for number in range(pods)}

    def app(self) -> web.Application:
        app = web.Application()
        models = "/v1/runtime/models"
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/v1/runtime/snapshot", self._snapshot)
        app.router.add_post(f"{models}/activate", self._activate)
        app.router.add_post(f"{models}/deactivate", self._deactivate)
        app.router.add_post(f"{models}/kv-limit", self._kv_limit)
        app.router.add_post(f"{models}/sleep", self._sleep)
        app.router.add_post(f"{models}/wake", self._wake)
        return app

    def _of(self, request: web.Request) -> dict[str, dict[str, Any]]:
        """The engines of the Pod that was called, told by the address that the caller connected to."""
        assert request.transport is not None
        return self._engines[request.transport.get_extra_info("sockname")[0]]

    async def _healthz(self, request: web.Request) -> web.Response:
        return json_answer({"status": "ok"})

    async def _snapshot(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        return json_answer(self._snapshot_of(request.transport.get_extra_info("sockname")[0]))

    def _snapshot_of(self, address: str) -> dict[str, Any]:
        accelerator = {
            "id": "GPU-0",
            "hbm_total_bytes": self._usable_bytes,
            "hbm_free_bytes": self._usable_bytes,
            "hbm_usable_bytes": self._usable_bytes,
        }
        return {
            "observed_at": now(),
            "accelerators": [accelerator],
            "models": list(self._engines[address].values()),
            "cached_artifacts": [],
        }

    async def _activate(self, request: web.Request) -> web.Response:
        asked = orjson.loads(await request.read())
        engines = self._of(request)
        name = asked["model_name"]
        engine = engines.get(name)
        if engine is None:
            engine = engines[name] = {
                "model_name": name,
                "artifact_url": asked["artifact_url"],
                "claim_ref": asked.get("claim_ref"),
                "port": FIRST_ENGINE_PORT + len(engines),
                "ipc_name": asked.get("ipc_name") or f"kvc_{name}",
                "phase": "active",
                "ready": True,
                "alive": True,
                "restart_count": 0,
                "last_error": None,
                "last_transition": now(),
                "kv_used_bytes": 0,
                "kv_capacity_bytes": self._usable_bytes,  # an engine's own default is the whole card
                "hbm_peak_bytes": 0,
                "sleeping_footprint_bytes": None,
                "request_metrics_observed": True,
                "requests_running": 0,
                "requests_waiting": 0,
                "request_success_total": 0,
            }
        answer = {key: engine[key] for key in ("model_name", "port", "ipc_name")}
        return json_answer({"status": "success", **answer, "message": None})

    async def _deactivate(self, request: web.Request) -> web.Response:
        asked = orjson.loads(await request.read())
        self._of(request).pop(asked["model_name"], None)
        return json_answer({"status": "success"})

    async def _kv_limit(self, request: web.Request) -> web.Response:
        return await self._operation(request, lambda asked: {"kv_capacity_bytes": asked["limit_bytes"]})

    async def _sleep(self, request: web.Request) -> web.Response:
        return await self._operation(request, lambda _: {"phase": "sleeping", "ready": False})

    async def _wake(self, request: web.Request) -> web.Response:
        return await self._operation(request, lambda _: {"phase": "active", "ready": True})

    async def _operation(self, request: web.Request, change: Any) -> web.Response:
        asked = orjson.loads(await request.read())
        engine = self._of(request).get(asked["model_name"])
        if engine is None:
            return json_answer({"detail": f"model '{asked['model_name']}' is not active"}, status=404)
        changes = change(asked)
        if changes.get("phase", engine["phase"]) != engine["phase"]:
            engine["last_transition"] = now()
        engine.update(changes)
        answer = {"model_name": asked["model_name"], "operation_id": asked["operation_id"], "phase": engine["phase"]}
        return json_answer({"status": "success", **answer, "applied": True})


def json_answer(answer: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(answer), status=status, content_type="application/json")


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


async def serve(pods: int, usable_bytes: int) -> None:
    runner = web.AppRunner(Fleet(pods, usable_bytes).app(), access_log=None)
    await runner.setup()
    for number in range(pods):
        await web.TCPSite(runner, pod_address(number), names.RUNTIME_PORT).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))

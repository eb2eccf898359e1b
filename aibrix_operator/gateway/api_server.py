"""The gateway's own HTTP server: which models there are, is it ready, what does it count, how does it stand.

Envoy forwards ``/v1/models`` here without asking about it, so the key is checked here. All else is for kubelets,
Prometheus and people, who come to its port directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, exposition
from starlette.exceptions import HTTPException

from aibrix_operator.api.route import RouteState
from aibrix_operator.gateway import refusals
from aibrix_operator.gateway.keys import Keys
from aibrix_operator.gateway.verdict import Refuse
from aibrix_operator.gateway.view import Model, View

OWNER = "aibrix"
ACTIVE, WAKING, UNAVAILABLE = "active", "waking", "unavailable"
STOP_WITHIN_S = 1

Problems: TypeAlias = Callable[[], Awaitable[Sequence[str]]]
"""What keeps this replica from being ready; nothing when it is."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What the server tells of."""

    view: View
    registry: CollectorRegistry
    problems: Problems
    keys: Keys | None = None
    """None: everybody may ask."""
    status: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    """Section of the status page → its JSON value."""


def status_of(model: Model) -> str:
    """One word: ``active``, ``sleeping``, ``waking`` (it was asked for), another state of its claim, or
    ``unavailable`` (its Pods are not ready)."""
    if model.endpoints:
        return ACTIVE
    standing = model.standing
    if standing is None:
        return UNAVAILABLE
    is_asked_for = bool(standing.reason) or (standing.wake is not None and standing.wake.already_asked)
    return WAKING if standing.state == RouteState.SLEEPING and is_asked_for else standing.state


def describe(model: Model) -> dict[str, Any]:
    """A model in OpenAI's shape, with what its clients would like to know besides."""
    told: dict[str, Any] = {"id": model.name, "object": "model", "created": 0, "owned_by": OWNER}
    told |= {"status": status_of(model), "replicas": len(model.endpoints)}
    if model.standing is not None and model.standing.reason:
        told["reason"] = model.standing.reason
    return told | ({"parent": model.base} if model.base else {})


def create_app(sources: Sources) -> FastAPI:
    """The routes."""
    app = FastAPI(title="aibrix-operator gateway", openapi_url=None)

    # HEAD is not added to GET by itself, and Envoy forwards both.
    @app.api_route("/v1/models", methods=["GET", "HEAD"])
    async def models(request: Request) -> Response:
        if not _may_ask(sources.keys, request):
            return _refused(refusals.wrong_key())
        found = sources.view.models
        return _json({"object": "list", "data": [describe(found[name]) for name in sorted(found)]})

    @app.api_route("/v1/models/{name:path}", methods=["GET", "HEAD"])
    async def one_model(name: str, request: Request) -> Response:
        if not _may_ask(sources.keys, request):
            return _refused(refusals.wrong_key())
        model = sources.view.models.get(name)
        if model is None:
            return _refused(Refuse(404, f"model {name} does not exist", "model_not_found", "model"))
        return _json(describe(model))

    @app.get("/healthz")
    async def healthz() -> Response:
        return _json({"status": "ok"})  # that the event loop comes to answer is what is asked

    @app.get("/readyz")
    async def readyz() -> Response:
        problems = list(await sources.problems())
        return _json({"status": "not ready" if problems else "ready", "problems": problems}, 503 if problems else 200)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        encode, content_type = exposition.choose_encoder(request.headers.get("accept", ""))
        return Response(encode(sources.registry), headers={"content-type": content_type})

    @app.get("/status")
    async def status() -> Response:
        return _json({name: section() for name, section in sources.status.items()})

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            return _json({"error": "method not allowed"}, 405)  # AIBrix's words
        return _refused(Refuse(error.status_code, "unknown request path"))

    return app


def _may_ask(keys: Keys | None, request: Request) -> bool:
    return keys is None or keys.holder(request.headers) is not None


def _refused(refuse: Refuse) -> Response:
    return Response(refuse.body(), refuse.status, dict(refuse.response_headers()))


def _json(value: object, status_code: int = 200) -> Response:
    return Response(orjson.dumps(value), status_code, media_type="application/json")


@contextlib.asynccontextmanager
async def serve(app: FastAPI, host: str, port: int) -> AsyncIterator[None]:
    """Serve while the context is open. OSError when the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    config = uvicorn.Config(
        app,
        http="httptools",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_WITHIN_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]), name="HTTP server")
    try:
        yield
    finally:
        server.should_exit = True
        await serving
        listener.close()


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers: the process that it is part of has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

"""The HTTP routes. Each turns a request into one call of ``controls`` or ``observation``, and errors into answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from aibrix_operator.runtime import answers, metrics
from aibrix_operator.runtime.changes import ChangeFeed
from aibrix_operator.runtime.controls import (
    BudgetExhaustedError,
    Controls,
    ModelUnknownError,
    NotSupportedError,
    StopFailedError,
)
from aibrix_operator.runtime.engines.door import EngineCallError
from aibrix_operator.runtime.engines.kind import InvalidArgsError, SleepRefusedError, UnverifiableArgsError
from aibrix_operator.runtime.fence import TermHeader
from aibrix_operator.runtime.fleet import Fleet, NoFreePortError
from aibrix_operator.runtime.kv_segment import SegmentLockedError
from aibrix_operator.runtime.launcher import LaunchError
from aibrix_operator.runtime.observation import Observation
from aibrix_operator.runtime.registry import RegistryError
from aibrix_operator.runtime.supervisor import Supervisor
from aibrix_operator.runtime_api import wire


class Sidecar:
    """What the routes work on: the parts around one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.controls = Controls(fleet)
        self.observation = Observation(fleet)
        self.supervisor = Supervisor(fleet)
        self.feed = ChangeFeed(fleet, self.observation, self.supervisor.look_soon)
        self.is_supervised = False
        """Whether stored engines were taken over and the supervisor runs."""


async def sidecar_of(request: Request) -> Sidecar:
    """The sidecar behind the app that got this request."""
    sidecar: Sidecar = request.app.state.sidecar
    return sidecar


Here = Annotated[Sidecar, Depends(sidecar_of)]

LONGEST_POLL_S = 50.0
PollSeconds = Annotated[float, Query(ge=0, le=LONGEST_POLL_S, allow_inf_nan=False)]

probes = APIRouter(tags=["probes"])
engines = APIRouter(prefix="/v1/runtime", tags=["engines"], responses=answers.TOKEN_NEEDED)
scrape = APIRouter(tags=["metrics"], responses=answers.TOKEN_NEEDED)


@probes.get("/healthz")
async def healthz() -> wire.HealthResponse:
    """The process answers."""
    return wire.HealthResponse(status="ok")


@probes.get("/ready", responses={503: {"model": wire.HealthResponse, "description": "Not supervising yet"}})
async def ready(here: Here, response: Response) -> wire.HealthResponse:
    """Engines of the last sidecar were taken over, and the supervisor runs."""
    if here.is_supervised:
        return wire.HealthResponse(status="ready")
    response.status_code = 503
    return wire.HealthResponse(status="not ready")


@scrape.get(
    "/metrics/",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text"}},
)
async def metrics_page(here: Here) -> Response:
    """The Prometheus page."""
    return Response(await metrics.render(here.fleet, here.observation), media_type=CONTENT_TYPE_LATEST)


@engines.get("/snapshot")
async def snapshot(here: Here, term: TermHeader = None) -> wire.Snapshot:
    """All that the sidecar sees now."""
    await here.fleet.hear_of(term)
    return await here.observation.snapshot()


@engines.get("/changes", response_model=wire.ChangesResponse)
async def changes(
    request: Request, here: Here, since: str = "", timeout: PollSeconds = 20.0, term: TermHeader = None
) -> Response:
    """The snapshot and its version, as soon as the version is another than `since`, or after `timeout` seconds."""

    async def hung_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue

    await here.fleet.hear_of(term)
    await here.feed.wait(since, timeout, hung_up)
    return Response(await here.feed.tell(), media_type="application/json")


@engines.get("/models")
async def models(here: Here) -> wire.ModelsResponse:
    """The short list of engines."""
    return await here.observation.models()


@engines.post(
    "/models/activate", response_model=wire.ActivateResponse, responses={**answers.START_ERROR, **answers.FENCED}
)
async def activate(
    request: wire.ActivateRequest, here: Here, term: TermHeader = None
) -> wire.ActivateResponse | JSONResponse:
    """Start a model's engine; the answer does not wait for it to be ready."""
    try:
        return await here.controls.activate(request, term)
    except InvalidArgsError as error:
        return answers.activation_error(request.model_name, error, 400)
    except (UnverifiableArgsError, BudgetExhaustedError, RegistryError, LaunchError, NoFreePortError) as error:
        return answers.activation_error(request.model_name, error, 500)


@engines.post(
    "/models/deactivate",
    response_model=wire.DeactivateResponse,
    responses={**answers.UNREADABLE, **answers.FENCED, **answers.BARE_ERROR},
)
async def deactivate(
    request: wire.DeactivateRequest, here: Here, term: TermHeader = None
) -> wire.DeactivateResponse | Response:
    """Stop a model's engine; an unknown one is fine."""
    try:
        await here.controls.deactivate(request, term)
    except StopFailedError as error:
        return answers.bare_error(error)
    return wire.DeactivateResponse()


@engines.post(
    "/models/kv-limit",
    response_model=wire.OperationResponse,
    responses={**answers.UNREADABLE, **answers.UNKNOWN_MODEL, **answers.FENCED, **answers.BARE_ERROR},
)
async def kv_limit(
    request: wire.KVLimitRequest, here: Here, term: TermHeader = None
) -> wire.OperationResponse | Response:
    """Set an engine's KV limit, once per operation id."""
    try:
        return await here.controls.set_kv_limit(request, term)
    except ModelUnknownError as error:
        return answers.refusal(error, 404)
    except (SegmentLockedError, OSError) as error:
        return answers.bare_error(error)


@engines.post(
    "/models/sleep",
    response_model=wire.OperationResponse,
    responses={**answers.UNREADABLE, **answers.UNKNOWN_MODEL, **answers.NOT_NOW, **answers.BARE_ERROR},
)
async def sleep(request: wire.SleepRequest, here: Here, term: TermHeader = None) -> wire.OperationResponse | Response:
    """Put an engine to sleep, once per operation id."""
    try:
        return await here.controls.sleep(request, term)
    except ModelUnknownError as error:
        return answers.refusal(error, 404)
    except (NotSupportedError, SleepRefusedError) as error:
        return answers.refusal(error, 409)
    except EngineCallError as error:
        return answers.bare_error(error)


@engines.post(
    "/models/wake",
    response_model=wire.OperationResponse,
    responses={**answers.UNREADABLE, **answers.UNKNOWN_MODEL, **answers.NOT_NOW, **answers.WAKE_ERROR},
)
async def wake(request: wire.WakeRequest, here: Here, term: TermHeader = None) -> wire.OperationResponse | Response:
    """Wake an engine, once per operation id."""
    try:
        return await here.controls.wake(request, term)
    except ModelUnknownError as error:
        return answers.refusal(error, 404)
    except NotSupportedError as error:
        return answers.refusal(error, 409)
    except EngineCallError as error:
        return answers.wake_error(request.model_name, error)

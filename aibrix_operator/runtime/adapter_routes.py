"""The HTTP routes about adapters and downloads, with the statuses and bodies of AIBrix's sidecar."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from aibrix_operator.artifacts.errors import AddressError
from aibrix_operator.runtime import answers
from aibrix_operator.runtime.adapter_engine import EngineError
from aibrix_operator.runtime.adapters import AdapterError, Adapters
from aibrix_operator.runtime.downloads import Downloads
from aibrix_operator.runtime_api import adapter_wire as wire

logger = logging.getLogger(__name__)

router = APIRouter(tags=["adapters"], responses=answers.TOKEN_NEEDED)

_ENGINE_SAYS: answers.Responses = {
    status: {"model": wire.EngineErrorResponse | wire.AdapterErrorResponse, "description": text}
    for status, text in (
        ("4XX", "The engine refuses, or no readable body"),
        ("5XX", "It failed, or the engine cannot be asked"),
    )
}


async def _adapters_of(request: Request) -> Adapters:
    adapters: Adapters = request.app.state.adapters
    return adapters


async def _downloads_of(request: Request) -> Downloads:
    downloads: Downloads = request.app.state.downloads
    return downloads


Here = Annotated[Adapters, Depends(_adapters_of)]
HereToo = Annotated[Downloads, Depends(_downloads_of)]


def _failed(error: Exception) -> JSONResponse:
    logger.warning("%s", error)
    return JSONResponse({"error": str(error)}, status_code=500)


def _in_engine_shape(message: str, kind: str, status: int) -> JSONResponse:
    body = wire.EngineErrorResponse(message=message, type=kind, code=status)
    return JSONResponse(body.model_dump(), status_code=status)


@router.post("/v1/lora_adapter/load", response_model=wire.LoadAdapterResponse, responses=_ENGINE_SAYS)
async def load(request: wire.LoadAdapterRequest | wire.LoadAdapterPathRequest, here: Here) -> Response:
    """Load an adapter, from an artifact address or from a path that the engine reads."""
    try:
        if isinstance(request, wire.LoadAdapterPathRequest):
            return PlainTextResponse(await here.load_path(request.lora_name, request.lora_path))
        loaded = await here.load(request)
    except AdapterError as error:
        return _failed(error)
    except EngineError as error:
        return _in_engine_shape(str(error), error.kind, error.status)
    body = wire.LoadAdapterResponse(
        message=f"adapter {request.lora_name} is loaded",
        local_path=loaded.path,
        engine_response={"message": loaded.engine_words},
    )
    return JSONResponse(body.model_dump())


@router.post("/v1/lora_adapter/unload", response_model=wire.UnloadAdapterResponse, responses=_ENGINE_SAYS)
async def unload(request: wire.UnloadAdapterRequest | wire.UnloadAdapterByNumberRequest, here: Here) -> Response:
    """Unload an adapter and remove its files, unless told to leave them."""
    removes = isinstance(request, wire.UnloadAdapterRequest) and request.cleanup_local
    try:
        told = await here.unload(request.lora_name, removes_files=removes)
    except AdapterError as error:
        return _failed(error)
    return JSONResponse(wire.UnloadAdapterResponse(message=told).model_dump())


@router.get(
    "/v1/models",
    response_class=Response,
    responses={
        **_ENGINE_SAYS,
        200: {"content": {"application/json": {"schema": {}}}, "description": "The engine's own list"},
    },
)
async def models(here: Here) -> Response:
    """The engine's list of models, as it answers it."""
    try:
        status, body = await here.engine.models()
    except EngineError as error:
        return _in_engine_shape(str(error), error.kind, error.status)
    return Response(body, status_code=status, media_type="application/json")


@router.post("/v1/model/download", response_model=wire.DownloadState, responses=_ENGINE_SAYS)
async def download(request: wire.DownloadRequest, downloads: HereToo) -> wire.DownloadState | Response:
    """Begin a download, or tell how far it is."""
    try:
        return await downloads.start(request)
    except AddressError as error:
        return _in_engine_shape(str(error), "InvalidArgumentError", 422)


@router.get("/v1/model/list")
async def downloaded(downloads: HereToo, request: wire.ListDownloadsRequest | None = None) -> wire.DownloadsResponse:
    """What was downloaded, or begun."""
    states = await downloads.states(request.local_dir if request is not None else None)
    return wire.DownloadsResponse(data=tuple(states))

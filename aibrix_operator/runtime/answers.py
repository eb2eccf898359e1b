"""How the API's errors look on the wire: the statuses, their bodies, and their place in the OpenAPI document."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse, PlainTextResponse, Response

from aibrix_operator.runtime_api.wire import ActivateResponse, ErrorResponse, WakeErrorResponse

logger = logging.getLogger(__name__)

Responses = dict[int | str, dict[str, Any]]

UNREADABLE: Final[Responses] = {400: {"model": ErrorResponse, "description": "The body cannot be parsed"}}
TOKEN_NEEDED: Final[Responses] = {401: {"model": ErrorResponse, "description": "A bearer token is needed"}}
UNKNOWN_MODEL: Final[Responses] = {404: {"model": ErrorResponse, "description": "No such engine"}}
FENCED: Final[Responses] = {409: {"model": ErrorResponse, "description": "The call is a former leader's"}}
NOT_NOW: Final[Responses] = {
    409: {
        "model": ErrorResponse,
        "description": "The engine cannot do this, or is still serving, or the call is a former leader's",
    }
}
BARE_ERROR: Final[Responses] = {
    500: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Whether it was done is not known"}
}
WAKE_ERROR: Final[Responses] = {500: {"model": WakeErrorResponse, "description": "The engine did not wake"}}
START_ERROR: Final[Responses] = {
    400: {"model": ActivateResponse | ErrorResponse, "description": "Flags this Pod cannot run, or no readable body"},
    500: {"model": ActivateResponse, "description": "The engine could not be started"},
}


def activation_error(model_name: str, error: Exception, status: int) -> JSONResponse:
    """A refused activation, in the shape of its success."""
    logger.warning("engine %s is not started: %s", model_name, error)
    refusal = ActivateResponse(status="error", model_name=model_name, message=str(error))
    return JSONResponse(refusal.model_dump(), status_code=status)


def wake_error(model_name: str, error: Exception) -> JSONResponse:
    """The engine's own failure to wake. The body tells it from a proxy's bare 5xx."""
    logger.warning("engine %s did not wake: %s", model_name, error)
    return JSONResponse(WakeErrorResponse(model_name=model_name, message=str(error)).model_dump(), status_code=500)


def refusal(error: Exception, status: int) -> JSONResponse:
    """A refusal with nothing but its reason."""
    return JSONResponse({"detail": str(error)}, status_code=status)


def bare_error(error: Exception) -> PlainTextResponse:
    """A failure after which the caller cannot know what was done: the contract has no body for it."""
    logger.warning("%s", error)
    return PlainTextResponse("Internal Server Error", status_code=500)


async def fenced(_request: Request, error: Exception) -> Response:
    """409 to a former leader."""
    logger.warning("%s", error)
    return refusal(error, HTTPStatus.CONFLICT)


async def unprocessable(_request: Request, error: Exception) -> Response:
    """422 with what was wrong, also when what was sent cannot be sent back (NaN, half a surrogate pair)."""
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    body = json.dumps({"detail": [_sendable(fault) for fault in faults]})
    return Response(body, status_code=422, media_type="application/json")


def _sendable(fault: Mapping[str, Any]) -> dict[str, Any]:
    """The four documented parts; an input that JSON has no word for is left out."""
    parts = {"type": fault["type"], "loc": list(fault["loc"]), "msg": fault["msg"], "input": fault.get("input")}
    try:
        json.dumps({"detail": [parts]}, allow_nan=False)
    except (ValueError, RecursionError):
        parts["input"] = "(no JSON)"
    return parts

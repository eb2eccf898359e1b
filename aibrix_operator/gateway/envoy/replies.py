"""Answers that Envoy makes by itself, put into OpenAI's shape; and refusals of ours, given their own status again."""

from __future__ import annotations

from typing import Any, Final

from aibrix_operator.gateway import wire
from aibrix_operator.gateway.verdict import ErrorType

Json = dict[str, Any]

_REFUSED: Final = "UAEX"
"""The response flag of an answer that ``ext_authz`` made."""
_TYPES = {
    400: ErrorType.INVALID_REQUEST,
    403: ErrorType.INVALID_REQUEST,
    404: ErrorType.INVALID_REQUEST,
    405: ErrorType.INVALID_REQUEST,
    408: ErrorType.INVALID_REQUEST,
    413: ErrorType.INVALID_REQUEST,
    426: ErrorType.INVALID_REQUEST,
    429: ErrorType.RATE_LIMIT,
    431: ErrorType.INVALID_REQUEST,
    503: ErrorType.OVERLOADED,
}
_UNAVAILABLE: Final = "service_unavailable"
_TEXT: Final = "%LOCAL_REPLY_BODY%"


def local_reply_config() -> Json:
    """The first mapper that fits is used.

    1. A refusal of ours that stands for a 5xx gets its status; body and headers are ours already.
    2. ``ext_authz`` got no answer: the decision is away.
    3. Any other refusal of ours stays as it is.
    4. All else is Envoy's own: its text becomes the message.
    """
    mappers = [
        {"filter": _both(_refused(), _status(on_wire)), "status_code": status}
        for status, on_wire in wire.STATUS_ON_WIRE.items()
    ]
    away = _shape("the gateway cannot decide about requests now", ErrorType.OVERLOADED, _UNAVAILABLE)
    mappers.append({"filter": _both(_refused(), _status(503)), **away})
    mappers.append({"filter": _refused()})
    mappers += [
        {"filter": _status(status), **_shape(_TEXT, kind, _UNAVAILABLE if status == 503 else None)}
        for status, kind in _TYPES.items()
    ]
    mappers.append({"filter": _status(0, "GE"), **_shape(_TEXT, ErrorType.API, None)})
    return {"mappers": mappers}


def _refused() -> Json:
    return {"response_flag_filter": {"flags": [_REFUSED]}}


def _status(status: int, op: str = "EQ") -> Json:
    value = {"default_value": status, "runtime_key": "gateway.no_such_key"}
    return {"status_code_filter": {"comparison": {"op": op, "value": value}}}


def _both(one: Json, other: Json) -> Json:
    return {"and_filter": {"filters": [one, other]}}


def _shape(message: str, kind: ErrorType, code: str | None) -> Json:
    error = {"message": message, "type": str(kind), "code": code, "param": None}
    return {"body_format_override": {"json_format": {"error": error}, "content_type": "application/json"}}

"""Sorts a sidecar's answer into an outcome. Pure, and total: whatever bytes arrive, an outcome comes out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from aibrix_operator.runtime_api.outcome import Done, Outcome, Refused, Unknown
from aibrix_operator.runtime_api.wire import Answer

ANSWER_LIMIT_BYTES = 1 << 20
MESSAGE_LIMIT = 300
"""Error texts end up in conditions and Events, so what a sidecar says is cut to this many characters."""

AnswerT = TypeVar("AnswerT", bound=Answer)


class UnreadableAnswerError(Exception):
    """The answer is not what the contract says. Handled inside this module."""


def read_answer(where: str, path: str, status: int, content: bytes, answer: type[AnswerT]) -> Outcome[AnswerT]:
    """What an answer to ``path`` from ``where`` means.

    1. Refusal: a 4xx, or a body that says ``"status":"error"`` whatever its status. 2. Done: a 2xx that reads as
    ``answer``. 3. Unknown: all else. ``content`` may hold one byte more than counts; it is then too long to be read.
    """
    try:
        body = _parse_json(content)
    except UnreadableAnswerError as error:
        if _is_refusal(status):
            return Refused(f"{where} refused {path} with status {status}", status)
        if not _is_success(status):
            return Unknown(f"{where} answered {path} with status {status} and no body of its own")
        return Unknown(f"{where} gave an unreadable answer to {path}: {error}")
    says_error = isinstance(body, dict) and body.get("status") == "error"
    if _is_refusal(status) or says_error:
        return Refused(f"{where} refused {path} with status {status}: {_reason(body)}", status)
    if not _is_success(status):
        return Unknown(f"{where} answered {path} with status {status} and no error of its own")
    try:
        return Done(answer.model_validate(body))
    except ValidationError as error:
        return Unknown(f"{where} gave an unreadable answer to {path}: {_first_fault(error)}")


def _parse_json(content: bytes) -> Any:
    if len(content) > ANSWER_LIMIT_BYTES:
        raise UnreadableAnswerError(f"it is longer than {ANSWER_LIMIT_BYTES} bytes")
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise UnreadableAnswerError(f"{len(content)} bytes that are no JSON ({cut(error)})") from error


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    return cut(f"{place}: {fault['msg']}" if place else fault["msg"])


def _reason(body: Any) -> str:
    """What the sidecar says in ``message`` or ``detail``, in one line."""
    if isinstance(body, dict):
        for key in ("message", "detail"):
            said = body.get(key)
            if isinstance(said, str) and said:
                return cut(said)
            if isinstance(said, list) and said:
                return cut(orjson.dumps(said[0]).decode())
    return "no reason given"


def _is_refusal(status: int) -> bool:
    return HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR


def _is_success(status: int) -> bool:
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def cut(text: object) -> str:
    """At most ``MESSAGE_LIMIT`` characters, without line breaks."""
    line = " ".join(str(text).split())
    return line if len(line) <= MESSAGE_LIMIT else line[: MESSAGE_LIMIT - 1] + "…"

"""Errors in vLLM's words, and the checks of request bodies that lead to them."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from aibrix_operator.sim.engine.http import JSON, HttpRequest, Response, json_response


class ApiError(Exception):
    """A refusal; the routes turn it into the error body of their API."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param


def bad_request(message: str, param: str | None = None) -> ApiError:
    return ApiError(400, "BadRequestError", message, param)


def bad_parameter(message: str, param: str, value: Any) -> ApiError:
    """A refused parameter; vLLM repeats its name and value at the end of the message."""
    return bad_request(f"{message} (parameter={param}, value={value})", param)


def openai_response(error: ApiError) -> Response:
    body = {"message": error.message, "type": error.kind, "param": error.param, "code": error.status}
    return json_response({"error": body}, error.status)


def anthropic_response(error: ApiError) -> Response:
    return json_response({"type": "error", "error": {"type": error.kind, "message": error.message}}, error.status)


@dataclass(frozen=True, slots=True)
class Kind:
    """A JSON type in pydantic's words."""

    types: tuple[type, ...]
    code: str
    message: str


STRING = Kind((str,), "string_type", "Input should be a valid string")
INTEGER = Kind((int,), "int_type", "Input should be a valid integer")
NUMBER = Kind((int, float), "float_type", "Input should be a valid number")
BOOLEAN = Kind((bool,), "bool_type", "Input should be a valid boolean")
LIST = Kind((list,), "list_type", "Input should be a valid list")
OBJECT = Kind((dict,), "dict_type", "Input should be a valid dictionary")
TEXT_OR_LIST = Kind((str, list), "string_type", "Input should be a valid string")

Schema = Mapping[str, Kind]


def read_body(request: HttpRequest, required: Schema, optional: Schema) -> dict[str, Any]:
    """The JSON object of a request, its known fields checked, others left as they are; an optional null is absent.

    Raises ApiError.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise _invalid(["Unsupported Media Type: Only 'application/json' is allowed"], None)
    if not request.body:
        raise _invalid([_problem("missing", "body", "Field required", None)], "body")
    body = _parse(request.body)
    if not isinstance(body, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise _invalid([_problem("model_attributes_type", "body", message, body)], "body")
    problems = {
        f"body.{name}": _problem("missing", f"body.{name}", "Field required", body)
        for name in required
        if name not in body
    }
    checked = {name: value for name, value in body.items() if value is not None or name in required}
    for name, kind in {**required, **optional}.items():
        if name in checked and not _is_a(checked[name], kind):
            problems[f"body.{name}"] = _problem(kind.code, f"body.{name}", kind.message, checked[name])
    if problems:
        raise _invalid(list(problems.values()), next(iter(problems)))
    return checked


def _parse(text: bytes) -> Any:
    with contextlib.suppress(orjson.JSONDecodeError):  # only the parser below says what vLLM repeats to the client
        return orjson.loads(text)
    try:
        return json.loads(text)
    except UnicodeDecodeError:
        raise bad_request("There was an error parsing the body") from None
    except json.JSONDecodeError as error:
        where = f"body.{error.pos}"
        detail = {
            "type": "json_invalid",
            "loc": where,
            "msg": "JSON decode error",
            "input": "<dict of 0 items>",
            "ctx": {"error": error.msg},
        }
        raise _invalid([str(detail)], where) from None


def _is_a(value: Any, kind: Kind) -> bool:
    return isinstance(value, kind.types) and (not isinstance(value, bool) or bool in kind.types)


def _problem(code: str, where: str, message: str, value: Any) -> str:
    shown = f"<{type(value).__name__} of {len(value)} items>" if isinstance(value, dict | list) else str(value)
    return str({"type": code, "loc": where, "msg": message, "input": shown})


def _invalid(problems: list[str], param: str | None) -> ApiError:
    count = f"{len(problems)} validation error{'s' if len(problems) > 1 else ''}"
    return ApiError(400, "Bad Request", f"{count}:\n  " + "\n  ".join(problems), param)

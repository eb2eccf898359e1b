"""Engines' errors in OpenAI's shape. Pure: one answer in, the answer that the client gets out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.verdict import Refuse

UNKNOWN: Final = "unknown response"
_STATUSES: Final = range(400, 600)


@dataclass(frozen=True, slots=True)
class Shaped:
    """What takes the place of the engine's answer. ``headers`` are added to the engine's own."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def shape(status: int, body: bytes) -> Shaped:
    """An answer with an error's ``status``, or with 200 and without what a 200 has (a hidden failure).

    - 500 and 401 tell nothing of the engine: the first would show its inside, the second is about a key between us.
    - Any other error keeps its status, and its own message, type, param and code where it has them.
    - A hidden failure gets the status that its ``code`` names, else 500.
    """
    if status == 500:
        return _ours(Refuse(500, "Internal server error"))
    if status == 401:
        return _ours(Refuse(401, "Incorrect API key provided", code="invalid_api_key", param="api_key"))
    document = _parse(body)
    if status in _STATUSES:
        return Shaped(status, _told(headers.ERROR_RESPONSE_UNKNOWN), _error(document, body))
    if document is None:
        refuse = Refuse(500, "the engine's answer is not JSON", headers={headers.ERROR_RESPONSE_UNMARSHAL: "true"})
        return _ours(refuse)
    return Shaped(_named_status(document), _told(headers.ERROR_RESPONSE_UNKNOWN), _error(document, body))


def _ours(refuse: Refuse) -> Shaped:
    return Shaped(refuse.status, tuple(refuse.response_headers()), refuse.body())


def _told(name: str) -> tuple[tuple[str, str], ...]:
    return (("content-type", "application/json"), (name, "true"))


def _parse(body: bytes) -> Any:
    """None for what is no JSON (and for ``null``, which says as little)."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _error(document: Any, body: bytes) -> bytes:
    """The one nested error: of ``{"error": {…}}``, of a flat ``{"message": …}``, of FastAPI's ``{"detail": …}``."""
    found: dict[str, Any] = {}
    if isinstance(document, dict):
        nested = document.get("error")
        if isinstance(nested, dict):
            found = nested
        elif isinstance(nested, str) and "message" not in document:
            found = {**document, "message": nested}
        else:
            found = document
        message = found.get("message") or found.get("detail") or UNKNOWN
    else:
        message = body.decode("utf-8", "replace") or UNKNOWN
    if not isinstance(message, str):
        message = orjson.dumps(message).decode()
    members = {name: found.get(name) for name in ("type", "code", "param")}
    return orjson.dumps({"error": {"message": message, **members}})


def _named_status(document: Any) -> int:
    """Of a failure that passed for a 200: its ``code``, a number or its text, where that is an error's status."""
    found = document if isinstance(document, dict) else {}
    nested = found.get("error")
    for code in (found.get("code"), nested.get("code") if isinstance(nested, dict) else None):
        text = str(code) if isinstance(code, (int, str)) else ""
        if text.isascii() and text.isdigit() and int(text[:4]) in _STATUSES:
            return int(text[:4])
    return 500

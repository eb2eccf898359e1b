"""Names that headers carry: the request's own, and those that people gave."""

from __future__ import annotations

import re
import uuid

_TRACE_ID = re.compile(r"[0-9A-Fa-f]{32}")


def request_id(traceparent: str | None) -> str:
    """The trace id of a W3C ``traceparent`` of four parts, else a fresh UUID."""
    if traceparent:
        parts = traceparent.split("-")
        if len(parts) == 4 and _TRACE_ID.fullmatch(parts[1]):
            return parts[1]
    return str(uuid.uuid4())


def text(value: str | None) -> str:
    """A header's value as its sender meant it: bytes of a header are handed on as latin-1, and most mean UTF-8."""
    if value is None:
        return ""
    if not value.isascii():
        try:
            value = value.encode("latin-1").decode()
        except UnicodeError:
            return value.strip()
    return value.strip()

"""Which name a request has in answers and logs."""

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

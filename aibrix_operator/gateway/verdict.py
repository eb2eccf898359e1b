"""What becomes of a request: forwarded, refused, or held until its model is awake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import orjson

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.view import Endpoint, Model, WakeTarget

if TYPE_CHECKING:
    from aibrix_operator.gateway.strategies.base import Ask, Routing


class ErrorType(StrEnum):
    """``error.type``, as OpenAI's clients know it."""

    INVALID_REQUEST = "invalid_request_error"
    AUTHENTICATION = "authentication_error"
    RATE_LIMIT = "rate_limit_error"
    OVERLOADED = "overloaded_error"
    API = "api_error"


_TYPE_BY_STATUS = {
    400: ErrorType.INVALID_REQUEST,
    401: ErrorType.AUTHENTICATION,
    404: ErrorType.INVALID_REQUEST,
    405: ErrorType.INVALID_REQUEST,
    413: ErrorType.INVALID_REQUEST,
    429: ErrorType.RATE_LIMIT,
    503: ErrorType.OVERLOADED,
}


@dataclass(frozen=True, slots=True)
class Refuse:
    """An error in OpenAI's shape. ``headers`` are those beside content-type and Retry-After."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    retry_after_s: int | None = None
    type: ErrorType | None = None
    """None: the one that belongs to the status."""
    wake: WakeTarget | None = None
    """A sleeping engine that this request is a reason to wake."""

    def body(self) -> bytes:
        """The four members, null where unset."""
        kind = self.type or _TYPE_BY_STATUS.get(self.status, ErrorType.API)
        return orjson.dumps({"error": {"message": self.message, "type": kind, "code": self.code, "param": self.param}})

    def response_headers(self) -> list[tuple[str, str]]:
        """All that the client gets beside the status, values made safe for the wire."""
        out = [("content-type", "application/json")]
        out += [(name, headers.value(text)) for name, text in self.headers.items()]
        if self.retry_after_s is not None:
            out.append((headers.RETRY_AFTER, str(self.retry_after_s)))
        return out


@dataclass(frozen=True, slots=True)
class RateLimit:
    """``requests`` in each window of ``window_s`` seconds. ``shown`` is the figure of the error message."""

    requests: int
    window_s: int
    shown: str


@dataclass(frozen=True, slots=True)
class Forward:
    """Where the request goes, and what it has to be charged before it may."""

    model: Model
    routing: Routing
    """The strategies that chose, told again when it is admitted and when it ends."""
    ask: Ask
    """What they were asked."""
    strategy: str
    """As the client, profile or default named it; the ``routing-strategy`` of both sides."""
    endpoint: Endpoint
    others: tuple[Endpoint, ...] = ()
    """Where else it may go, best first, when ``endpoint`` turns out to be at its cap."""
    rps: RateLimit | None = None
    inflight: int | None = None
    """Cap on requests at once, of each endpoint."""
    fallback: str | None = None
    """Why the strategies could not choose by their own rule; counted in a metric."""
    profile: str | None = None
    """Chosen for ``config-profile: auto``; told to the client."""
    path: str | None = None
    """Sent to the engine instead of the client's."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Hold it: its model is asleep or waking, and its profile says for how long a request may wait."""

    model: Model
    refuse: Refuse
    """The answer when the time is over, or too many wait already."""
    wait_s: float


Verdict: TypeAlias = Forward | Refuse | Wait

"""The route of one claim on one Pod: the annotation by which the gateway finds an engine's port."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationError, model_validator

from aibrix_operator.api.schema import Contract


class RouteState(StrEnum):
    """What the engine behind a route is doing."""

    ACTIVE = "active"
    ACTIVATING = "activating"
    SLEEPING = "sleeping"
    FAILED = "failed"


RouteReason: TypeAlias = Literal["", "WaitingForRoom", "Moving"]
"""Why it sleeps or has failed, where the state does not say: what the operator writes."""


class RouteError(ValueError):
    """A route annotation that says nothing usable; only that entry is ignored."""


class Route(Contract):
    """One route. ``port`` is 0 exactly when ``state`` is not active."""

    model: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=0, le=65535)]
    state: RouteState
    wake_by_request: bool = True
    reason: str = ""
    """One of ``RouteReason``, or what another controller says."""

    @model_validator(mode="after")
    def _port_and_state_agree(self) -> Route:
        if (self.port > 0) != (self.state is RouteState.ACTIVE):
            raise ValueError(f"port {self.port} and state {self.state} contradict each other")
        return self

    def to_annotation(self) -> str:
        """The JSON value, the same text for the same route."""
        return self.model_dump_json(
            by_alias=True, exclude_defaults=False, exclude={"reason"} if not self.reason else None
        )


def parse_route(text: str) -> Route:
    """Read an annotation. Raises RouteError.

    A route without ``state`` comes from an older controller: active with a port, activating without.
    """
    try:
        route = _Wire.model_validate_json(text)
        state = route.state or (RouteState.ACTIVE if route.port else RouteState.ACTIVATING)
        return Route(
            model=route.model,
            port=route.port,
            state=state,
            wake_by_request=route.wake_by_request,
            reason=route.reason,
        )
    except ValidationError as error:
        raise RouteError(f"not a route: {error.errors()[0]['msg']}") from None


class _Wire(Contract):
    model: str
    port: int = 0
    state: RouteState | None = None
    wake_by_request: bool = False
    reason: str = ""

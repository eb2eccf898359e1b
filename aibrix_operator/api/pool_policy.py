"""The policy of a warm pool: a JSON annotation on its Deployment, read strictly.

A policy with anything wrong in it counts as none: sleeping engines keep their wake reserve, nobody is put to sleep.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

DEFAULT_MAKE_ROOM_AFTER_S = 30


class PolicyErrorClass(StrEnum):
    """What is wrong with a policy, as Events and metrics name it."""

    INVALID_JSON = "invalid_json"
    UNKNOWN_FIELD = "unknown_field"
    UNSUPPORTED_MODE = "unsupported_mode"
    INVALID_CAPACITY = "invalid_capacity"
    INVALID_FLOOR = "invalid_floor"
    INVALID_SLEEP_WINDOW = "invalid_sleep_window"


class PolicyError(ValueError):
    """The annotation is no policy. ``error_class`` is for programs, the text for people."""

    def __init__(self, error_class: PolicyErrorClass, text: str) -> None:
        super().__init__(text)
        self.error_class = error_class


class _Strict(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel, use_attribute_docstrings=True
    )


class Lifecycle(_Strict):
    """When engines sleep, and what a sleeper keeps."""

    sleep_after_seconds: Annotated[int, Field(ge=0)] = 0
    """An engine idle for so long is put to sleep; 0: never for being idle."""
    no_wake_reserve_while_asleep: bool = False
    """A sleeper is charged only what it was measured to hold, and its seat may be given away until it is asked for."""
    sleep_to_make_room_after_seconds: Annotated[int, Field(gt=0)] | None = None
    """Idle for so long, it may be put to sleep for another model; default 30, or ``sleepAfterSeconds`` if less."""

    @model_validator(mode="after")
    def _windows_agree(self) -> Lifecycle:
        window, room = self.sleep_after_seconds, self.sleep_to_make_room_after_seconds
        if not window and not self.no_wake_reserve_while_asleep:
            raise PydanticCustomError(
                "window", "sleepAfterSeconds must be positive unless noWakeReserveWhileAsleep is true"
            )
        if window and room is not None and room > window:
            raise PydanticCustomError("window", "sleepToMakeRoomAfterSeconds must not be longer than sleepAfterSeconds")
        return self

    @property
    def make_room_after_s(self) -> int:
        """Seconds of idleness after which an engine may be put to sleep for another model."""
        if self.sleep_to_make_room_after_seconds is not None:
            return self.sleep_to_make_room_after_seconds
        return min(DEFAULT_MAKE_ROOM_AFTER_S, self.sleep_after_seconds or DEFAULT_MAKE_ROOM_AFTER_S)


class Reclaim(_Strict):
    """Deprecated; checked and without effect, since every engine on a card is held to a recorded limit."""

    mode: Literal["kv-first"]
    capacity_bytes: Annotated[int, Field(gt=0)]
    guaranteed_floor_percent: Annotated[int, Field(ge=0, le=100)]


class PoolPolicy(_Strict):
    """A pool's policy."""

    lifecycle: Lifecycle | None = None
    """None: nobody is put to sleep, and sleepers keep their reserve."""
    reclaim: Reclaim | None = None


_CLASS_OF_FIELD = {
    "mode": PolicyErrorClass.UNSUPPORTED_MODE,
    "capacityBytes": PolicyErrorClass.INVALID_CAPACITY,
    "guaranteedFloorPercent": PolicyErrorClass.INVALID_FLOOR,
    "lifecycle": PolicyErrorClass.INVALID_SLEEP_WINDOW,
    "sleepAfterSeconds": PolicyErrorClass.INVALID_SLEEP_WINDOW,
    "sleepToMakeRoomAfterSeconds": PolicyErrorClass.INVALID_SLEEP_WINDOW,
}


def parse_policy(text: str) -> PoolPolicy:
    """Read the annotation. Raises PolicyError for the first thing that is wrong."""
    try:
        value: Any = json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise PolicyError(PolicyErrorClass.INVALID_JSON, "nested too deeply") from None
    except ValueError as error:
        raise PolicyError(PolicyErrorClass.INVALID_JSON, str(error)) from None
    if not isinstance(value, dict):
        raise PolicyError(PolicyErrorClass.INVALID_JSON, "not a JSON object")
    try:
        return PoolPolicy.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise PolicyError(PolicyErrorClass.UNKNOWN_FIELD, f"unknown field {path}") from None
        field = str(first["loc"][-1]) if first["loc"] else ""
        error_class = _CLASS_OF_FIELD.get(field, PolicyErrorClass.INVALID_JSON)
        raise PolicyError(error_class, f"{path}: {first['msg']}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict; a key given twice is a mistake that nobody would see otherwise."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is given twice")
    return value

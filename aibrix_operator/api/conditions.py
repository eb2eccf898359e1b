"""Standard conditions, set the same way for every kind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from aibrix_operator.api.schema import Contract, Extend, Int64

# The API server takes 32,768; a page of text helps nobody in `kubectl describe`.
MESSAGE_LIMIT = 1024


class ConditionStatus(StrEnum):
    """Tri-state of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Contract):
    """One observation about the object, in the shape of ``metav1.Condition``."""

    type: str
    """Name of the condition, unique within the list."""
    status: ConditionStatus
    """True, False or Unknown."""
    observed_generation: Int64 = 0
    """The generation of the spec that this condition was set for."""
    last_transition_time: str
    """When ``status`` last flipped, RFC 3339 in UTC."""
    reason: str
    """A CamelCase word for programs."""
    message: str = Field(default="", max_length=32768)
    """A sentence for people."""


ConditionList = Annotated[
    tuple[Condition, ...],
    Extend({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]
"""Each type once."""


def rfc3339(moment: datetime) -> str:
    """``moment`` in UTC with whole seconds, as Kubernetes writes times."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def bounded(message: str, limit: int = MESSAGE_LIMIT) -> str:
    """``message`` cut to ``limit`` characters with an ellipsis; control characters become blanks."""
    clean = message if message.isprintable() else "".join(c if c.isprintable() else " " for c in message)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def find_condition(conditions: Sequence[Condition], type_: str) -> Condition | None:
    """The condition of that type, or None."""
    return next((c for c in conditions if c.type == type_), None)


def set_condition(
    conditions: Sequence[Condition],
    type_: str,
    status: bool,
    reason: str,
    message: str,
    *,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """``conditions`` with one of them set, in place or appended.

    ``lastTransitionTime`` moves only when the status flips; ``observedGeneration`` always follows ``generation``.
    The same value comes back when nothing differs.
    """
    wanted = ConditionStatus.TRUE if status else ConditionStatus.FALSE
    before = find_condition(conditions, type_)
    message = bounded(message)
    if before is not None and (before.status, before.reason, before.message, before.observed_generation) == (
        wanted,
        reason,
        message,
        generation,
    ):
        return tuple(conditions)
    since = before.last_transition_time if before is not None and before.status == wanted else rfc3339(now)
    after = Condition(
        type=type_,
        status=wanted,
        observed_generation=generation,
        last_transition_time=since,
        reason=reason,
        message=message,
    )
    if before is None:
        return (*conditions, after)
    return tuple(after if c.type == type_ else c for c in conditions)

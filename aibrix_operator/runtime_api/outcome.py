"""What became of one call to a sidecar: a closed set of values, never an exception.

The four answers differ in what the caller may believe afterwards, which is all that the order of writes depends on:
after ``Refused`` and ``NotSent`` the world is as before, after ``Unknown`` only the next snapshot tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from aibrix_operator.runtime_api.wire import Answer

AnswerT = TypeVar("AnswerT", bound=Answer)


@dataclass(frozen=True, slots=True)
class Done(Generic[AnswerT]):
    """The sidecar did it (a KV limit still counts only once it is read back)."""

    answer: AnswerT


@dataclass(frozen=True, slots=True)
class Refused:
    """The sidecar said no, and nothing was done."""

    message: str
    status: int
    """The HTTP status: 409 of a sleep means that the engine is still serving."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """The call never left: no connection, an address that cannot be read, or a sidecar left alone."""

    message: str
    left_alone: bool = False
    """True when the call was held back because the sidecar timed out a moment ago."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The call may or may not have been carried out: timeout, cut or unreadable answer, a bare 5xx."""

    message: str


Outcome: TypeAlias = Done[AnswerT] | Refused | NotSent | Unknown

"""What Envoy asks about one request, and what it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, str]]
"""(lower-case name, value)"""


def _keep() -> None:
    """The body's memory is its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One request that a client sent, whole."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    """Lower-case name → value, of those that Envoy hands on; a header sent twice has its values joined by a comma."""
    body: bytes | memoryview
    let_go: Callable[[], None] = _keep
    """To be called when the body was read: its memory is used for another one from then on."""


@dataclass(frozen=True, slots=True, eq=False)
class Forwarded:
    """It goes on."""

    upstream: Headers
    """Set on the request to the engine, in the place of the client's own."""
    client: Headers
    """Added to the answer that the client gets."""


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """It ends here."""

    status: int
    headers: Headers
    body: bytes | memoryview
    let_go: Callable[[], None] = _keep
    """To be called when the body was read: its memory is used for another one from then on."""


Answer: TypeAlias = Forwarded | Refused


class Exchange(Protocol):
    """Answers Envoy's questions. What needs no waiting is answered at once, which most are."""

    def answer(self, question: Question) -> Answer | Awaitable[Answer]:
        """Never raises for what a client sent; a fault of ours is a 500 in OpenAI's shape."""

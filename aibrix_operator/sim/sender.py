"""Who sends: the process of the operator in whose context a call is made. None: whoever acts past the operator."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from aibrix_operator.api.term import Term


class Sender(Protocol):
    """A process of the operator, as those see it that it calls."""

    name: str
    stands_for_election: bool

    @property
    def is_leader(self) -> bool: ...

    @property
    def term(self) -> Term | None: ...


SENDER: ContextVar[Sender | None] = ContextVar("sender", default=None)

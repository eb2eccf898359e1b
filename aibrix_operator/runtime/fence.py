"""Keeps a former leader of the operator from changing anything here.

Leaders put their term into their calls. The highest one heard of counts, also when it came with a call that only
reads: a new leader's readings are then later than anything that an old one may still do. It is stored in the registry.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header
from pydantic import BeforeValidator, WithJsonSchema

from aibrix_operator.api.term import TERM_HEADER, Term, parse_term


class StaleTermError(Exception):
    """The call is from a former leader. Answered with 409."""

    def __init__(self, term: Term, highest: Term) -> None:
        super().__init__(
            f"the call is from term {term} of the operator, and term {highest} was here already: another replica leads"
            " now, so nothing is done. If this is the only operator, delete its Lease: the new one begins a later term"
        )


class Fence:
    """The highest term that was accepted. Used on the event loop only; changing calls ask under the operation lock."""

    def __init__(self, highest: Term | None = None) -> None:
        self._highest = highest

    @property
    def highest(self) -> Term | None:
        """None until a call carried a term."""
        return self._highest

    def admit(self, term: Term | None) -> bool:
        """Let a changing call through; whether the highest term rose. Raises ``StaleTermError``.

        A call without a term is a user's, a gateway's or one of upstream's tools', and is let through.
        """
        if term is not None and self._highest is not None and term < self._highest:
            raise StaleTermError(term, self._highest)
        return self.hear_of(term)

    def hear_of(self, term: Term | None) -> bool:
        """Note the term of a call that changes nothing; whether the highest term rose."""
        if term is None or (self._highest is not None and term <= self._highest):
            return False
        self._highest = term
        return True


def _parse(given: Any) -> Any:
    return parse_term(given) if isinstance(given, str) else given


# FastAPI answers 422 when it cannot be read.
TermHeader = Annotated[
    Annotated[Term, BeforeValidator(_parse), WithJsonSchema({"type": "string"})] | None,
    Header(alias=TERM_HEADER, description="The term of the leading operator: a lower one than before is refused."),
]

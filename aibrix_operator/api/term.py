"""The term of a leading operator: what it writes into its calls, and by which a runtime tells a former leader."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

TERM_HEADER: Final = "X-AIBrix-Operator-Term"
_TERM = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d))/(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Term:
    """One time of leading. Later terms are greater: by the Lease's creation first, then by its transitions.

    A Lease that is deleted and made anew counts its transitions from 0 again, which is why its creation comes first.
    Both figures are the API server's, so that no two machines' clocks are compared.
    """

    created: datetime
    """The Lease's creationTimestamp, in UTC."""
    transitions: int
    """The Lease's leaseTransitions."""

    def __str__(self) -> str:
        """As in the header: ``2026-11-29T08:00:00Z/4``."""
        return f"{self.created.isoformat().replace('+00:00', 'Z')}/{self.transitions}"


def parse_term(text: str) -> Term:
    """Read ``<RFC 3339 time>/<count>``. ValueError when it is not of that form."""
    match = _TERM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is no term: it has the form 2026-11-29T08:00:00Z/4")
    try:
        created = datetime.fromisoformat(match[1]).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text[:80]!r} is no term: {error}") from error
    return Term(created, int(match[2]))

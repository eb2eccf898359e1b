"""How often prefix-cache found what it looks for. Plain counts; a scrape turns them into metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

_PERCENT_BOUNDS: Final = ((0, "0"), (25, "1-25"), (50, "26-50"), (75, "51-75"), (100, "76-100"))


class Selection(StrEnum):
    """Why a request went where it went."""

    MATCH = "prefix_match"
    SKIPPED = "prefix_match_skipped"
    """An engine had some of the prompt, and another was taken."""
    FALLBACK = "least_request_fallback"
    """No engine had any of it."""


class PrefixFigures:
    """Of one gateway."""

    def __init__(self) -> None:
        self.decisions: dict[tuple[str, str], int] = {}
        """(model, bucket of the percent that the chosen engine had) → requests"""
        self.selections = dict.fromkeys(Selection, 0)
        self.imbalances = 0
        """Requests before which the load-imbalance gate left only the least loaded."""

    def decided(self, model: str, percent: float, *, is_any_matched: bool) -> None:
        """A request was sent to an engine with ``percent`` of its prompt."""
        key = (model, percent_bucket(percent))
        self.decisions[key] = self.decisions.get(key, 0) + 1
        matched = Selection.SKIPPED if is_any_matched else Selection.FALLBACK
        self.selections[Selection.MATCH if percent else matched] += 1

    def keep(self, models: frozenset[str]) -> None:
        """Forget all other models."""
        self.decisions = {key: count for key, count in self.decisions.items() if key[0] in models}


def percent_bucket(percent: float) -> str:
    """Its name, of whole percents."""
    return next(name for most, name in _PERCENT_BOUNDS if percent <= most)

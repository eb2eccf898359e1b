"""Small steps that strategies share: the lowest of some scores, one of equals, and having nothing to remember."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aibrix_operator.gateway.strategies.base import Ask, Pick, Usage

if TYPE_CHECKING:
    from aibrix_operator.gateway.request import Request
    from aibrix_operator.gateway.view import Endpoint

NO_METRICS = "no_metrics"
"""Fallback: no candidate's engine says what the strategy reads."""


class Stateless:
    """A strategy that remembers nothing of the requests it placed."""

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """Nothing to remember."""

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """Nothing to correct."""


def draw(ask: Ask) -> Endpoint:
    """Any candidate, each as likely as the others."""
    return ask.candidates[int(ask.random.random() * len(ask.candidates))]


def lowest(ask: Ask, scores: Sequence[float | None]) -> Pick:
    """The candidate with the lowest finite score, equals as likely as each other; without any score a random one."""
    best = math.inf
    places: list[int] = []
    for place, score in enumerate(scores):
        if score is None or not score <= best or score == math.inf:
            continue
        if score < best:
            best = score
            places = [place]
        else:
            places.append(place)
    if not places:
        return Pick(draw(ask), NO_METRICS)
    return Pick(ask.candidates[places[int(ask.random.random() * len(places))]])

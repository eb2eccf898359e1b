"""What a strategy text becomes: one strategy by its own rule, or several that are weighed against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aibrix_operator.gateway.strategies import choosing, gate
from aibrix_operator.gateway.strategies.base import Ask, Pick, Scorer, Strategy, Usage

if TYPE_CHECKING:
    from aibrix_operator.gateway.request import Request
    from aibrix_operator.gateway.view import Endpoint

TIE = 1e-9
"""Sums this close are equal."""
BROKEN = "error"
"""Fallback: the strategy raised."""
NO_SCORES = "no_scores"
"""Fallback: a strategy that was asked for has no figure of any candidate."""


@dataclass(frozen=True, slots=True)
class Alone:
    """One strategy, by its own rule."""

    text: str
    strategy: Strategy
    is_gated: bool

    def pick(self, ask: Ask) -> Pick:
        """See ``Routing``."""
        if len(ask.candidates) == 1:
            return Pick(ask.candidates[0])
        if self.is_gated:
            ask = gate.through(ask)
        try:
            return self.strategy.pick(ask)
        except Exception:  # a custom strategy's fault must not cost the client its answer; the fallback is counted
            return Pick(choosing.draw(ask), BROKEN)

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """See ``Routing``."""
        self.strategy.admitted(ask, endpoint)

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """See ``Routing``."""
        self.strategy.ended(request, endpoint, usage)


@dataclass(frozen=True, slots=True)
class Part:
    """One scorer of a blend. ``is_asked``: the text names it; else it was blended in."""

    scorer: Scorer
    weight: int
    is_asked: bool = True


@dataclass(frozen=True, slots=True)
class Blend:
    """The candidate with the highest sum of weighted shares; of equals any."""

    text: str
    parts: tuple[Part, ...]
    of_ports: Part | None = None
    """Takes part for models whose Pods answer on several ports."""

    def pick(self, ask: Ask) -> Pick:
        """See ``Routing``."""
        if len(ask.candidates) > 1:
            ask = gate.through(ask)
        candidates = ask.candidates
        if len(candidates) == 1:
            return Pick(candidates[0])
        sums = [0.0] * len(candidates)
        fallback = None
        for part in self._parts_for(ask):
            try:
                shares = shares_of(part.scorer.scores(ask), lower_is_better=part.scorer.lower_is_better)
                sums = [so_far + part.weight * share for so_far, share in zip(sums, shares, strict=True)]
            except Exception:  # a scorer's fault removes that part only; the fallback is counted
                fallback = BROKEN
                continue
            if part.is_asked and fallback is None and not any(shares):
                fallback = NO_SCORES
        # Ties are judged on shares of 1, whatever the weights: hence the sum of weights here and not a division above.
        bar = max(sums) - TIE * sum(part.weight for part in self.parts)
        best = [place for place, total in enumerate(sums) if total >= bar]
        return Pick(candidates[best[int(ask.random.random() * len(best))]], fallback)

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """See ``Routing``."""
        for part in self.parts:
            part.scorer.admitted(ask, endpoint)

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """See ``Routing``."""
        for part in self.parts:
            part.scorer.ended(request, endpoint, usage)

    def _parts_for(self, ask: Ask) -> tuple[Part, ...]:
        if self.of_ports is None or len({endpoint.uid for endpoint in ask.candidates}) == len(ask.candidates):
            return self.parts
        return (*self.parts, self.of_ports)


def shares_of(scores: Sequence[float | None], *, lower_is_better: bool) -> list[float]:
    """Scores as shares in [0, 1], best 1. All equal: 1 each. No score, or one that is not finite: 0."""
    finite = [score for score in scores if score is not None and math.isfinite(score)]
    if not finite:
        return [0.0] * len(scores)
    least, most = min(finite), max(finite)
    if least == most:
        return [0.0 if score is None or not math.isfinite(score) else 1.0 for score in scores]
    worst, scale = (most, least - most) if lower_is_better else (least, most - least)
    return [0.0 if score is None or not math.isfinite(score) else (score - worst) / scale for score in scores]

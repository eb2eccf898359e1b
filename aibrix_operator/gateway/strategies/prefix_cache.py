"""``prefix-cache``: the engine that has most of the prompt in its cache, unless it has too much to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aibrix_operator.gateway import prefix_blocks
from aibrix_operator.gateway.strategies import gate
from aibrix_operator.gateway.strategies.base import Ask, Pick, Usage
from aibrix_operator.gateway.strategies.least_request import LeastRequest

if TYPE_CHECKING:
    from aibrix_operator.gateway.prefix_table import PrefixTable
    from aibrix_operator.gateway.request import Request
    from aibrix_operator.gateway.view import Endpoint

NO_MATCH: Final = "no_match"
"""Fallback to least-request: nobody has its first block."""
OVERLOADED: Final = "overloaded"
"""Fallback to least-request: all that have some of it have too much to do."""
_MEMO: Final = "prefix-cache"
_MATCHED: Final = "prefix-cache matched"
"""Candidates and their percents, as they were last told."""
_MOST_ROOTS: Final = 10_000


class PromptBlocks:
    """Block hashes of requests, worked out once a request, however many strategies read them."""

    def __init__(self, table: PrefixTable) -> None:
        self._settings = table.settings
        self._roots: dict[str, bytes] = {}

    def of(self, ask: Ask) -> tuple[int, ...]:
        """From the prompt's begin; empty for one shorter than a block."""
        memo = ask.request.memo
        blocks: tuple[int, ...] | None = memo.get(_MEMO)
        if blocks is None:
            model = ask.model.name
            root = self._roots.get(model)
            if root is None:
                if len(self._roots) >= _MOST_ROOTS:
                    self._roots.clear()
                root = self._roots[model] = prefix_blocks.root(model, self._settings)
            blocks = memo[_MEMO] = prefix_blocks.hashes_of(ask.request.text_of(), root, self._settings)
        return blocks

    def forget(self, request: Request) -> None:
        """The request was placed: a stream may last long, and hashes are many."""
        request.memo.pop(_MEMO, None)


class PrefixCache:
    """Longest match first, then fewer requests; skipped are Pods with more requests than mean + factor × deviation."""

    name = "prefix-cache"
    lower_is_better = False

    def __init__(self, table: PrefixTable) -> None:
        self._table = table
        self._blocks = PromptBlocks(table)
        self._otherwise = LeastRequest()

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        matched = self.scores(ask)
        if not any(matched):
            return Pick(self._otherwise.pick(ask).endpoint, NO_MATCH)
        counts = [ask.loads.count(endpoint) for endpoint in ask.candidates]
        highest = highest_load(counts, ask.knobs.prefix_cache.standard_deviation_factor)
        best: tuple[float, float] | None = None
        places: list[int] = []
        for place, (percent, count) in enumerate(zip(matched, counts, strict=True)):
            if not percent or count > highest:
                continue
            rank = (-percent, count)
            if best is None or rank < best:
                best, places = rank, [place]
            elif rank == best:
                places.append(place)
        if not places:
            return Pick(self._otherwise.pick(ask).endpoint, OVERLOADED)
        return Pick(ask.candidates[places[int(ask.random.random() * len(places))]])

    def scores(self, ask: Ask) -> Sequence[float]:
        """Percent of the prompt's blocks that each candidate has, cut to whole ones."""
        blocks = self._blocks.of(ask)
        depths = self._table.match(ask.model.name, ask.candidates, blocks, ask.now_s)
        percents = [depth * 100 // len(blocks) for depth in depths] if blocks else depths
        ask.request.memo[_MATCHED] = (ask.candidates, percents)
        return percents

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """From now on ``endpoint`` has the whole prompt."""
        self._count(ask, endpoint)
        self._table.add(ask.model.name, endpoint, self._blocks.of(ask), ask.now_s)
        self._blocks.forget(ask.request)

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """Its blocks stay."""

    def _count(self, ask: Ask, endpoint: Endpoint) -> None:
        memo = ask.request.memo
        if memo.pop(gate.FIRED, False):
            self._table.figures.imbalances += 1
        found = memo.pop(_MATCHED, None)
        if found is None:
            return  # one engine alone was not looked into the table for
        candidates, percents = found
        percent = percents[candidates.index(endpoint)] if endpoint in candidates else 0
        self._table.figures.decided(ask.model.name, percent, is_any_matched=any(percents))


def highest_load(counts: Sequence[int], factor: float) -> float:
    """Mean and ``factor`` sample deviations: above it a Pod has too much to do."""
    mean = sum(counts) / len(counts)
    squares = sum((count - mean) ** 2 for count in counts)
    return mean + factor * math.sqrt(squares / (len(counts) - 1)) if len(counts) > 1 else mean

"""``prefix-cache-preble``: follow a prompt's cache when more than half of it is there, else spread the work.

After Preble (E2: exploit, else explore). What engines were given is this gateway's own knowledge; it is not shared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from aibrix_operator.gateway.prefix_table import PrefixTable
from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick, Usage
from aibrix_operator.gateway.strategies.prefix_cache import PromptBlocks

if TYPE_CHECKING:
    from aibrix_operator.gateway.prefix_blocks import PrefixSettings
    from aibrix_operator.gateway.request import Request
    from aibrix_operator.gateway.view import Endpoint

FOLLOWED_ABOVE: Final = 0.5
"""Share of the prompt that has to be in a cache."""
WINDOW_S: Final = 180.0
ENTRIES_LIVE_S: Final = 300
BYTES_PER_TOKEN: Final = 4
DECODE_S_PER_TOKEN: Final = 0.15
PREFILL_S_PER_TOKEN: Final = {"V100": 0.00025, "A6000": 0.00011}
"""Linear models: a 7B model's prefill in 16 bit at about half of the card's peak."""


@dataclass(frozen=True, slots=True)
class _Placed:
    at_s: float
    incarnation: str
    blocks: int
    cost_s: float


@dataclass(slots=True)
class _Window:
    """What each engine of one model was given in the last three minutes, by incarnation."""

    placed: deque[_Placed] = field(default_factory=deque)
    blocks: dict[str, int] = field(default_factory=dict)
    cost_s: dict[str, float] = field(default_factory=dict)

    def add(self, one: _Placed) -> None:
        self.placed.append(one)
        self.blocks[one.incarnation] = self.blocks.get(one.incarnation, 0) + one.blocks
        self.cost_s[one.incarnation] = self.cost_s.get(one.incarnation, 0.0) + one.cost_s

    def move_to(self, now_s: float) -> None:
        while self.placed and self.placed[0].at_s <= now_s - WINDOW_S:
            one = self.placed.popleft()
            self.blocks[one.incarnation] -= one.blocks
            self.cost_s[one.incarnation] -= one.cost_s
            if not self.blocks[one.incarnation] and self.cost_s[one.incarnation] < 1e-6:
                del self.blocks[one.incarnation], self.cost_s[one.incarnation]


class PrefixCachePreble:
    """More than half matched: the longest match, of equal ones that with the fewest blocks in the window.

    Else the engine with the lowest cost in the window: prefill of what it did not have, shared by those that have it
    too, and an assumed decoding of each request.
    """

    name = "prefix-cache-preble"
    lower_is_better = True

    def __init__(self, settings: PrefixSettings) -> None:
        self._table = PrefixTable(replace(settings, ttl_s=ENTRIES_LIVE_S))
        self._blocks = PromptBlocks(self._table)
        self._windows: dict[str, _Window] = {}

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        return choosing.lowest(ask, self.scores(ask))

    def scores(self, ask: Ask) -> Sequence[float | None]:
        """None for those that a longer match passes over."""
        blocks = self._blocks.of(ask)
        window = self._windows.get(ask.model.name, _Window())
        window.move_to(ask.now_s)
        depths = self._table.match(ask.model.name, ask.candidates, blocks, ask.now_s)
        longest = max(depths)
        if blocks and longest / len(blocks) > FOLLOWED_ABOVE:
            return [
                window.blocks.get(endpoint.incarnation, 0) if depth == longest else None
                for endpoint, depth in zip(ask.candidates, depths, strict=True)
            ]
        return [window.cost_s.get(endpoint.incarnation, 0.0) for endpoint in ask.candidates]

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """Remember what it has now, and what that costs it."""
        blocks = self._blocks.of(ask)
        model = ask.model.name
        (own,) = self._table.match(model, (endpoint,), blocks, ask.now_s)
        depths = self._table.match(model, ask.model.endpoints, blocks, ask.now_s)
        missed = sum(1 / (1 + sum(depth > place for depth in depths)) for place in range(own, len(blocks)))
        knobs = ask.knobs.preble
        tokens = missed * self._table.settings.block_bytes / BYTES_PER_TOKEN
        cost_s = tokens * PREFILL_S_PER_TOKEN[knobs.target_gpu] + knobs.decoding_length * DECODE_S_PER_TOKEN
        window = self._windows.setdefault(model, _Window())
        window.move_to(ask.now_s)
        window.add(_Placed(ask.now_s, endpoint.incarnation, len(blocks), cost_s))
        self._table.add(model, endpoint, blocks, ask.now_s)
        self._blocks.forget(ask.request)

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """What it was given stays in the window."""

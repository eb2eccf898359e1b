"""``prefix-balance``: hits of the prefix cache and even work at once.

Engines differ in what a prompt costs them (the part that they do not have), and in what they were given of late. Work
has a price that grows fast with what an engine was given beside the mean of all; the engine where the prompt's work
comes cheapest serves. So a new session, which costs about the same everywhere, goes where least was given, and evens
out what sessions that stay at their engine's cache make uneven; where that is not enough sessions move, short ones
first.

The price is relative: a model of little traffic is evened out as one of much is, and no figure has to fit its prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aibrix_operator.gateway.knobs import PrefixBalanceKnobs
from aibrix_operator.gateway.prefix_table import NS
from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick, Usage
from aibrix_operator.gateway.strategies.prefix_cache import PromptBlocks

if TYPE_CHECKING:
    from aibrix_operator.gateway.prefix_table import PrefixTable
    from aibrix_operator.gateway.request import Request
    from aibrix_operator.gateway.view import Endpoint

PER_REQUEST_BYTES: Final = 64.0
"""What a request costs beside its prompt, so that empty prompts are spread too."""
TURN_BYTES: Final = 2048.0
"""What a chat grows by, more or less: an answer and a question."""
OWN_SHARE: Final = 0.25
"""Of a request's own work that counts for its price. With a quarter two gateways kept windows of the benchmark's
workload evener than with half or all of it, at the same hits."""
_LARGEST_EXPONENT: Final = 500.0
"""What would be dearer is as dear, so that no price overflows."""
FORGOTTEN_S: Final = 600.0
"""An engine that was given nothing for so long is forgotten; of its work nothing is left."""


def _price(share: float, evenness: float) -> float:
    """Of a byte of work at an engine that was given ``share`` times the mean: 1 at the mean."""
    return math.exp(min(_LARGEST_EXPONENT, evenness * (share - 1)))


class _Work:
    """What one engine was given of late: bytes of prompts that it did not have, fading."""

    __slots__ = ("at_s", "bytes")

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.bytes = 0.0

    def add(self, amount: float, at_s: float, fading_s: float) -> None:
        """Given at ``at_s``, which may be a little before what was given last."""
        if at_s >= self.at_s:
            self.bytes = self.at(at_s, fading_s) + amount
            self.at_s = at_s
        else:
            self.bytes += amount * math.exp((at_s - self.at_s) / fading_s)

    def at(self, now_s: float, fading_s: float) -> float:
        return self.bytes * math.exp((self.at_s - now_s) / fading_s) if now_s > self.at_s else self.bytes


class PrefixBalance:
    """What other gateways gave is known from the blocks that they tell of, where the table is shared."""

    name = "prefix-balance"
    lower_is_better = True

    def __init__(self, table: PrefixTable) -> None:
        self._table = table
        self._blocks = PromptBlocks(table)
        self._work: dict[str, dict[str, _Work]] = {}
        """Model → incarnation → work."""
        self._fading_s = PrefixBalanceKnobs().fading_s
        """As of the last request; what other gateways gave comes without a profile."""
        table.tell_learned(self._learned)

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        return choosing.lowest(ask, self.scores(ask))

    def scores(self, ask: Ask) -> Sequence[float | None]:
        """Bytes of work, each at its engine's price."""
        work = self._work.get(ask.model.name, {})
        knobs, now_s = ask.knobs.prefix_balance, ask.now_s
        costs = self._costs(ask, ask.candidates)
        known = [work.get(endpoint.incarnation) for endpoint in ask.candidates]
        given = [0.0 if so_far is None else so_far.at(now_s, knobs.fading_s) for so_far in known]
        # This request is of the work too, so that the mean is never 0.
        mean = (sum(given) + min(costs)) / len(given)
        return [
            cost * _price((so_far + OWN_SHARE * cost) / mean, knobs.evenness)
            for cost, so_far in zip(costs, given, strict=True)
        ]

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """It has the prompt from now on, and has had the work of it."""
        work = self._work.setdefault(ask.model.name, {})
        given = work.get(endpoint.incarnation)
        if given is None:
            self._forget_idle(work, ask)
            given = work[endpoint.incarnation] = _Work(ask.now_s)
        (cost,) = self._costs(ask, (endpoint,))
        self._fading_s = ask.knobs.prefix_balance.fading_s
        given.add(cost, ask.now_s, self._fading_s)
        self._table.add(ask.model.name, endpoint, self._blocks.of(ask), ask.now_s)
        self._blocks.forget(ask.request)

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """What it was given fades by itself."""

    def _learned(self, model: str, incarnation: str, at_ns: int) -> None:
        """Another gateway gave it a block of work."""
        work = self._work.setdefault(model, {})
        given = work.get(incarnation)
        at_s = at_ns / NS
        if given is None:
            given = work[incarnation] = _Work(at_s)
        given.add(self._table.settings.block_bytes, at_s, self._fading_s)

    def _costs(self, ask: Ask, candidates: Sequence[Endpoint]) -> list[float]:
        """Bytes that each does not have. Behind the last block that is hashed, who has all before it is taken to lack a
        turn's worth: how much of that it has is unknown."""
        blocks = self._blocks.of(ask)
        settings = self._table.settings
        size, most = settings.block_bytes, settings.most_hashed
        whole = PER_REQUEST_BYTES + ask.request.prompt_bytes
        depths = self._table.match(ask.model.name, candidates, blocks, ask.now_s)
        behind = min(whole - most * size, PER_REQUEST_BYTES + TURN_BYTES)
        return [behind if depth == most else whole - depth * size for depth in depths]

    def _forget_idle(self, work: dict[str, _Work], ask: Ask) -> None:
        for incarnation in [name for name, given in work.items() if ask.now_s - given.at_s > FORGOTTEN_S]:
            del work[incarnation]

"""``prefix-balance``: hits of the prefix cache and even work at once.

Engines differ in what a prompt costs them (the part that they do not have), and in what they were given of late. The
one at which both together are least serves. So a new session, which costs about the same everywhere, goes where least
was given, and evens out what sessions that stay at their engine's cache make uneven; and a session moves when its
engine was given more than others by as much as the move costs.
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
DEAR_WEIGHT: Final = 3.0
"""Of what a move costs above ``cheap_bytes``: moving many short sessions evens out more for less than one long one."""
FORGOTTEN_S: Final = 600.0
"""An engine that was given nothing for so long is forgotten; of its work nothing is left."""


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
        """Bytes: work of late, and what this prompt adds."""
        work = self._work.get(ask.model.name, {})
        knobs, now_s = ask.knobs.prefix_balance, ask.now_s
        costs = self._costs(ask, ask.candidates)
        least = min(costs)
        scores: list[float | None] = []
        for endpoint, cost in zip(ask.candidates, costs, strict=True):
            given = work.get(endpoint.incarnation)
            so_far = 0.0 if given is None else given.at(now_s, knobs.fading_s)
            price = cost - least
            dear = max(0.0, price - knobs.cheap_bytes)
            scores.append(so_far + least + knobs.move_weight * price + DEAR_WEIGHT * dear)
        return scores

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

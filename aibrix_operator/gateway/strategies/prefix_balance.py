"""``prefix-balance``: hits of the prefix cache and even work at once.

Engines differ in what a prompt costs them (the part that they do not have), and in what they were given of late. The
one at which both together are least serves. So a new session, which costs about the same everywhere, goes where least
was given, and evens out what sessions that stay at their engine's cache make uneven; and a session moves when its engine
was given more than others by as much as the move costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick, Usage
from aibrix_operator.gateway.strategies.prefix_cache import PromptBlocks

if TYPE_CHECKING:
    from aibrix_operator.gateway.prefix_table import PrefixTable
    from aibrix_operator.gateway.request import Request
    from aibrix_operator.gateway.view import Endpoint

PER_REQUEST_BYTES: Final = 64.0
"""What a request costs beside its prompt, so that empty prompts are spread too."""
FORGOTTEN_S: Final = 600.0
"""An engine that was given nothing for so long is forgotten; of its work nothing is left."""


class _Work:
    """What one engine was given of late: bytes of prompts that it did not have, fading."""

    __slots__ = ("at_s", "bytes")

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.bytes = 0.0

    def at(self, now_s: float, fading_s: float) -> float:
        return self.bytes * math.exp((self.at_s - now_s) / fading_s) if now_s > self.at_s else self.bytes


class PrefixBalance:
    """Each gateway evens out what it gives itself; what engines have in their caches is shared through the table."""

    name = "prefix-balance"
    lower_is_better = True

    def __init__(self, table: PrefixTable) -> None:
        self._table = table
        self._blocks = PromptBlocks(table)
        self._work: dict[str, dict[str, _Work]] = {}
        """Model → incarnation → work."""

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        return choosing.lowest(ask, self.scores(ask))

    def scores(self, ask: Ask) -> Sequence[float | None]:
        """Bytes: work of late, and what this prompt adds."""
        work = self._work.get(ask.model.name, {})
        knobs = ask.knobs.prefix_balance
        costs = self._costs(ask, ask.candidates)
        now_s, fading_s, weight = ask.now_s, knobs.fading_s, knobs.balance_weight
        for place, endpoint in enumerate(ask.candidates):
            given = work.get(endpoint.incarnation)
            if given is not None:
                costs[place] += weight * given.at(now_s, fading_s)
        return costs

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """It has the prompt from now on, and has had the work of it."""
        work = self._work.setdefault(ask.model.name, {})
        given = work.get(endpoint.incarnation)
        if given is None:
            self._forget_idle(work, ask)
            given = work[endpoint.incarnation] = _Work(ask.now_s)
        (cost,) = self._costs(ask, (endpoint,))
        given.bytes = given.at(ask.now_s, ask.knobs.prefix_balance.fading_s) + cost
        given.at_s = max(given.at_s, ask.now_s)
        self._table.add(ask.model.name, endpoint, self._blocks.of(ask), ask.now_s)
        self._blocks.forget(ask.request)

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """What it was given fades by itself."""

    def _costs(self, ask: Ask, candidates: Sequence[Endpoint]) -> list[float]:
        blocks = self._blocks.of(ask)
        whole = PER_REQUEST_BYTES + ask.request.prompt_bytes
        size = self._table.settings.block_bytes
        depths = self._table.match(ask.model.name, candidates, blocks, ask.now_s)
        return [whole - depth * size for depth in depths]

    def _forget_idle(self, work: dict[str, _Work], ask: Ask) -> None:
        for incarnation in [name for name, given in work.items() if ask.now_s - given.at_s > FORGOTTEN_S]:
            del work[incarnation]

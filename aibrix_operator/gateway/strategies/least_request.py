"""``least-request``: where the fewest requests run, as the gateways count them."""

from __future__ import annotations

from collections.abc import Sequence

from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick


class LeastRequest(choosing.Stateless):
    """Equals are as likely as each other. With no Pod filtered out, the cost does not depend on their number."""

    name = "least-request"
    lower_is_better = True

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        if len(ask.candidates) == len(ask.model.endpoints):
            return Pick(ask.loads.board(ask.model).draw_least(ask.random))
        return choosing.lowest(ask, self.scores(ask))

    def scores(self, ask: Ask) -> Sequence[float | None]:
        """Running requests."""
        count = ask.loads.count
        return [count(endpoint) for endpoint in ask.candidates]

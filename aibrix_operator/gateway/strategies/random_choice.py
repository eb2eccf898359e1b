"""``random``: any ready Pod."""

from __future__ import annotations

from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick


class RandomChoice(choosing.Stateless):
    """Each candidate is as likely as the others. It has no figures, so it cannot be mixed with others."""

    name = "random"

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        return Pick(choosing.draw(ask))

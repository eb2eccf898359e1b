"""The gate before the strategies: when load is far out of balance, only the least loaded Pods are candidates."""

from __future__ import annotations

from typing import Final

from aibrix_operator.gateway.knobs import LoadBalanceKnobs
from aibrix_operator.gateway.strategies.base import Ask

FIRED: Final = "gate fired"
"""In the memo of a request that it changed the candidates of."""


def fires(counts: int, least: int, most: int, total: int, knobs: LoadBalanceKnobs) -> bool:
    """``counts`` Pods have between ``least`` and ``most`` requests, ``total`` together.

    Two Pods: the gap is at least ``imbalance_min_gap``. More: the fullest also has more than ``imbalance_factor`` times
    what one above the mean would have, so that a gap that is small beside the load is let be.
    """
    if counts < 2 or most - least < knobs.imbalance_min_gap:
        return False
    return counts == 2 or most > knobs.imbalance_factor * (total / counts + 1)


def through(ask: Ask) -> Ask:
    """``ask`` itself, or one with the least loaded candidates alone."""
    knobs = ask.knobs.load_balance
    if len(ask.candidates) == len(ask.model.endpoints):
        board = ask.loads.board(ask.model)
        if not fires(len(board), board.least, board.most, board.total, knobs):
            return ask
        left = board.least_loaded()
    else:
        counts = [ask.loads.count(endpoint) for endpoint in ask.candidates]
        least = min(counts)
        if not fires(len(counts), least, max(counts), sum(counts), knobs):
            return ask
        left = tuple(e for e, count in zip(ask.candidates, counts, strict=True) if count == least)
    ask.request.memo[FIRED] = True
    return Ask(ask.request, ask.model, left, ask.loads, ask.metrics, ask.knobs, ask.now_s, ask.random)

"""Placement alone, without a cluster: how many claims a second the ledger seats on cards that fill up."""

from __future__ import annotations

import dataclasses
import time

from aibrix_operator.ledger import placement
from aibrix_operator.ledger.card import Card, Occupant, Seat
from aibrix_operator.ledger.placement import Candidate, Placed

CLAIMS = 5_000
CARDS = 1_000
_GIB = 1 << 30


def per_second() -> float:
    """Claims placed in a second, each beside all earlier ones. SystemExit when one finds no room."""
    seat = Seat(30 * _GIB, 10 * _GIB)
    usable_bytes = CLAIMS // CARDS * seat.total_bytes
    candidates = {pod: Candidate(pod, Card(pod, usable_bytes)) for pod in (f"warm-{n:04d}" for n in range(CARDS))}
    began_s = time.perf_counter()
    for number in range(CLAIMS):
        name = f"claim-{number:05d}"
        answer = placement.place(name, seat, list(candidates.values()))
        if not isinstance(answer, Placed):
            raise SystemExit(f"{name} was not placed: {answer.message}")
        before = candidates[answer.pod]
        assert before.card is not None
        candidates[answer.pod] = dataclasses.replace(
            before,
            card=before.card.with_occupant(Occupant(name, seat)),
            engines_awake=before.engines_awake + 1,
            engines=before.engines + 1,
            instances=before.instances + 1,
        )
    return CLAIMS / (time.perf_counter() - began_s)

"""The cards of a plan, as the command line names them: ``8xH20``, ``2x2xH20``, ``big=1x24Gi``. Pure."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aibrix_operator.sim import card

_SHAPE = re.compile(
    r"(?:(?P<pool>[A-Za-z0-9](?:[-_.A-Za-z0-9]*[A-Za-z0-9])?)=)?"
    r"(?:(?P<pods>\d+)x)?(?:(?P<gpus>\d+)x)?(?P<kind>[^x=]+)"
)
MOST_PODS = 1000
MOST_GPUS = 16


class UnknownCards(ValueError):
    """A text that names no cards; the message says what was wrong with it."""


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """One warm Pod of a plan, empty, and what it has."""

    name: str
    pool: str
    """Its pool label; empty when the plan looks at no labels."""
    kind: str
    """What its GPUs are, as written."""
    gpus: int
    usable_bytes: int
    """Of each of its GPUs."""


def parse_pods(texts: Sequence[str]) -> tuple[PlannedPod, ...]:
    """The Pods that all ``--cards`` together describe, by name. Raises UnknownCards.

    ``[POOL=][PODS x][GPUS x]KIND``: one GPU a Pod unless said. Either all of them name a pool or none does.
    """
    racks = [_parse(text) for text in texts]
    if not racks:
        raise UnknownCards("a plan needs cards, such as 8xH20")
    if len({bool(pool) for pool, *_ in racks}) > 1:
        raise UnknownCards("either all --cards name a pool (big=8xH20), or none does")
    totals: Counter[str] = Counter()
    for pool, pods, gpus, kind in racks:
        totals[_stem(pool, gpus, kind)] += pods
    numbers = {stem: itertools.count(1) for stem in totals}
    found = []
    for pool, pods, gpus, kind in racks:
        stem, usable_bytes = _stem(pool, gpus, kind), card.parse_card(kind).usable_bytes
        width = len(str(totals[stem]))  # names sort as their numbers do
        found += [
            PlannedPod(f"{stem}-{next(numbers[stem]):0{width}}", pool, kind, gpus, usable_bytes) for _ in range(pods)
        ]
    return tuple(sorted(found, key=lambda p: p.name))


def _stem(pool: str, gpus: int, kind: str) -> str:
    parts = [pool, f"{gpus}x{kind}" if gpus > 1 else kind]
    return "-".join(part for part in parts if part).lower()


def _parse(text: str) -> tuple[str, int, int, str]:
    """(pool, Pods, GPUs a Pod, kind)."""
    shape = _SHAPE.fullmatch(text.strip())
    if shape is None:
        raise UnknownCards(f"--cards {text!r} should read like 8xH20, 2x2xH20 or pool=1x24Gi")
    pods, gpus, kind = int(shape["pods"] or 1), int(shape["gpus"] or 1), shape["kind"]
    if not (1 <= pods <= MOST_PODS and 1 <= gpus <= MOST_GPUS):
        raise UnknownCards(f"--cards {text!r}: 1 to {MOST_PODS} Pods of 1 to {MOST_GPUS} GPUs each")
    try:
        card.parse_card(kind)
    except ValueError as error:
        raise UnknownCards(f"--cards {text!r}: {error}") from None
    return shape["pool"] or "", pods, gpus, kind

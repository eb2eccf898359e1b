"""A card drawn in the terminal: who holds what, and what is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aibrix_operator.ledger import figures

WIDTH = 72
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_FOOTPRINT, _LIMIT, _FREE = "█", "▒", "·"


@dataclass(frozen=True, slots=True)
class Share:
    """One engine's part of a card."""

    claim: str
    footprint_bytes: int
    kv_limit_bytes: int


def draw(title: str, usable_bytes: int, shares: Sequence[Share]) -> RenderableType:
    """A bar as wide as the card, and a line for each engine under it."""
    free_bytes = usable_bytes - sum(s.footprint_bytes + s.kv_limit_bytes for s in shares)
    parts = [part for s in shares for part in (s.footprint_bytes, s.kv_limit_bytes)]
    widths = cells([*parts, free_bytes], WIDTH)
    bar, legend = Text(), Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for number, share in enumerate(shares):
        colour = _COLOURS[number % len(_COLOURS)]
        bar.append(_FOOTPRINT * widths[2 * number], colour)
        bar.append(_LIMIT * widths[2 * number + 1], colour)
        legend.add_row(
            Text(share.claim, colour),
            f"{_FOOTPRINT} footprint {figures.gib(share.footprint_bytes)}",
            f"{_LIMIT} KV limit {figures.gib(share.kv_limit_bytes)}",
        )
    bar.append(_FREE * widths[-1], "dim")
    legend.add_row(Text("free", "dim"), f"{_FREE} {figures.gib(free_bytes)}", "")
    return Group(Text(f"{title}, {figures.gib(usable_bytes)} usable", "bold"), bar, legend)


def cells(sizes: Sequence[int], width: int) -> list[int]:
    """``width`` characters shared in proportion to ``sizes``: the largest remainders get what rounding down leaves."""
    total = sum(sizes)
    if total <= 0:
        return [0] * len(sizes)
    shares = [width * size // total for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda i: width * sizes[i] % total, reverse=True)
    for index in by_remainder[: width - sum(shares)]:
        shares[index] += 1
    return shares

"""A card drawn in the terminal: who holds what, and what is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aibrix_operator.ledger import figures

WIDTH = 72
FOOTPRINT, MAPPED, LIMIT, FREE = "█", "▓", "░", "·"
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


@dataclass(frozen=True, slots=True)
class Share:
    """One engine's part of a card."""

    claim: str
    footprint_bytes: int
    kv_limit_bytes: int
    kv_mapped_bytes: int = 0
    """The part of its limit that it uses now; drawn no longer than the limit."""


def colour(number: int) -> str:
    """The colour of the ``number``-th engine of a card, in its bar and wherever its name stands."""
    return _COLOURS[number % len(_COLOURS)]


def bar(usable_bytes: int, shares: Sequence[Share], width: int = WIDTH) -> Text:
    """The card as one line of ``width`` characters: each engine's footprint, mapped KV and unused limit, then what is
    free. Engines that were promised more than the card has fill the line, each in proportion."""
    parts = [part for s in shares for part in _parts(s)]
    widths = cells([*parts, max(_free_bytes(usable_bytes, shares), 0)], width)
    line = Text(no_wrap=True)
    for number in range(len(shares)):
        for glyph, length in zip((FOOTPRINT, MAPPED, LIMIT), widths[3 * number : 3 * number + 3], strict=True):
            line.append(glyph * length, colour(number))
    line.append(FREE * widths[-1], "dim")
    return line


def draw(title: str, usable_bytes: int, shares: Sequence[Share]) -> RenderableType:
    """A bar as wide as the card, and a line for each engine under it."""
    legend = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for number, share in enumerate(shares):
        legend.add_row(
            Text(share.claim, colour(number)),
            f"{FOOTPRINT} footprint {figures.gib(share.footprint_bytes)}",
            f"{LIMIT} KV limit {figures.gib(share.kv_limit_bytes)}",
        )
    legend.add_row(Text("free", "dim"), f"{FREE} {figures.gib(_free_bytes(usable_bytes, shares))}", "")
    heading = Text(f"{title}, {figures.gib(usable_bytes)} usable", "bold")
    return Group(heading, bar(usable_bytes, shares), legend)


def _parts(share: Share) -> tuple[int, int, int]:
    mapped_bytes = min(share.kv_mapped_bytes, share.kv_limit_bytes)
    return share.footprint_bytes, mapped_bytes, share.kv_limit_bytes - mapped_bytes


def _free_bytes(usable_bytes: int, shares: Sequence[Share]) -> int:
    return usable_bytes - sum(s.footprint_bytes + s.kv_limit_bytes for s in shares)


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

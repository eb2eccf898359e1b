"""A played plan as text for a terminal. Pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from aibrix_operator.api.conditions import bounded
from aibrix_operator.explain import picture
from aibrix_operator.explain.planning import PlannedCard, PlayedPlan
from aibrix_operator.ledger import figures


def render(plan: PlayedPlan, skipped: int) -> RenderableType:
    """Cards with their engines, the empty ones in one line, then who finds no room and why."""
    parts: list[RenderableType] = []
    for card in plan.cards:
        if card.seats:
            parts += [_card(card), Text(_room(card), "dim"), Text()]
    empty = [c.pod.name for c in plan.cards if not c.seats]
    if empty:
        parts.append(Text(f"Empty: {', '.join(empty)}\n", "dim"))
    for claim in plan.unplaced:
        parts.append(
            Text.assemble(
                (claim.claim, "bold red"), " is not placed: ", (claim.reason, "yellow"), f": {bounded(claim.message)}"
            )
        )
    parts.append(_verdict(plan))
    if skipped:
        parts.append(Text(f"{skipped} object(s) of other kinds were passed over.", "dim"))
    return Group(*parts)


def _card(card: PlannedCard) -> RenderableType:
    gpus = f", {card.pod.gpus} GPUs with all sizes on each" if card.pod.gpus > 1 else ""
    return picture.draw(f"{card.pod.name}{gpus}", card.pod.usable_bytes, card.shares)


def _room(card: PlannedCard) -> str:
    return f"room for one more claim of up to {figures.gib(card.room_bytes)}"


def _verdict(plan: PlayedPlan) -> Text:
    placed = sum(len(card.seats) for card in plan.cards)
    total, used = placed + len(plan.unplaced), sum(1 for card in plan.cards if card.seats)
    where = f"{used} of {len(plan.cards)} card(s)"
    if plan.fits:
        return Text(f"All {total} claim(s) fit, on {where}.", "bold green")
    return Text(f"{len(plan.unplaced)} of {total} claim(s) do not fit; {placed} do, on {where}.", "bold red")

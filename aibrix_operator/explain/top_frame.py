"""One frame of ``top``: every card with its engines, and the claims without a card. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from aibrix_operator.api.conditions import MESSAGE_LIMIT, bounded, find_condition
from aibrix_operator.api.modelclaim import ClaimPhase, ConditionType
from aibrix_operator.explain import picture, views
from aibrix_operator.explain.claim_text import gib, size_of
from aibrix_operator.explain.views import CardView, EngineView
from aibrix_operator.ledger import figures
from aibrix_operator.modelclaim.accounts import open_accounts
from aibrix_operator.modelclaim.snapshot import Claim, Fleet

_NARROWEST = 40
_STATE_STYLES = {"serving": "green", "asleep": "blue", "failed": "bold red", "restarting": "red"}
_OTHER_STATE = "yellow"


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A claim without a card."""

    name: str
    need_bytes: int | None
    phase: str
    why: str
    """Reason and message of what its conditions say."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What was seen at one moment, ready to be drawn at any width."""

    now: datetime
    scope: str
    """The namespace that is looked at, or words for all of them."""
    cards: tuple[CardView, ...]
    waiting: tuple[WaitingRow, ...]
    warnings: tuple[str, ...] = ()
    height: int | None = None
    """Lines of the screen; engines, and then cards, are left out where there are more. None: print all."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width, _NARROWEST)
        above = [_heading(self), *(Text(bounded(warning), "bold red") for warning in self.warnings)]
        below = [*_waiting(self.waiting), _legend()]
        lines_left = None
        if self.height is not None:
            lines_left = self.height - len(console.render_lines(Group(*above, *below), options))
        yield from above
        yield from _cards(self.cards, width, lines_left)
        yield from below


def build(fleets: Sequence[Fleet], scope: str, now: datetime, warnings: Sequence[str] = ()) -> Frame:
    """The frame of these fleets; names carry their namespace when there are several."""
    is_wide = len(fleets) > 1
    cards: list[CardView] = []
    waiting: list[WaitingRow] = []
    for fleet in fleets:
        accounts = open_accounts(fleet)
        cards += [views.view(accounts[name]) for name in sorted(accounts)]
        seated = {s.claim.uid for account in accounts.values() for s in account.sittings}
        waiting += [_waiting_row(c, is_wide) for c in fleet.claims if c.uid not in seated]
    return Frame(now, scope, tuple(cards), tuple(waiting), tuple(warnings))


def _waiting_row(claim: Claim, is_wide: bool) -> WaitingRow:
    failed = claim.status.phase is ClaimPhase.FAILED
    condition = find_condition(claim.status.conditions, ConditionType.READY if failed else ConditionType.SCHEDULED)
    if claim.is_deleting:
        why = "being deleted"
    elif condition is None:
        why = "the operator has not looked at it yet"
    else:
        why = f"{condition.reason}: {condition.message}"
    why = bounded(why, 2 * MESSAGE_LIMIT)
    name = f"{claim.namespace}/{claim.name}" if is_wide else claim.name
    need_bytes = None if claim.seat is None else claim.seat.total_bytes
    return WaitingRow(name, need_bytes, str(claim.status.phase or "new"), why)


def _heading(frame: Frame) -> Text:
    running = sum(len(card.engines) for card in frame.cards)
    counts = f"{len(frame.cards)} card(s), {running} engine(s), {len(frame.waiting)} claim(s) without a card"
    # Blanks end a span and never begin one: some viewers of SVG drop those at the beginning.
    return Text.assemble(
        ("aibrix-operator top  ", "bold"), f"{frame.scope}  ", (f"{frame.now:%H:%M:%S} UTC  ", "dim"), f"{counts}\n"
    )


def _legend() -> Text:
    told = f"{picture.FOOTPRINT} footprint  {picture.MAPPED} KV mapped  {picture.LIMIT} KV limit  {picture.FREE} free"
    return Text(f"\n{told}", "dim")


def _cards(cards: Sequence[CardView], width: int, lines_left: int | None) -> Iterator[RenderableType]:
    """All cards in full; on a screen too low for that without their engines; and then as many as there is room for."""
    is_full = lines_left is None or sum(3 + len(c.engines) for c in cards) <= lines_left
    shown = len(cards) if is_full or lines_left is None else max((lines_left - 1) // 2, 1)
    for number, card in enumerate(cards[:shown]):
        if number and is_full:
            yield Text()
        yield _card_heading(card)
        if card.drawn_bytes is not None:
            yield picture.bar(card.drawn_bytes, [e.share for e in card.engines], width)
        if card.engines and is_full:
            yield _engines(card)
    if shown < len(cards):
        yield Text(f"{len(cards) - shown} more card(s): ask for one namespace, or use a taller terminal", "dim")
    if not cards:
        yield Text("There is no warm pod.", "dim")


def _card_heading(card: CardView) -> Text:
    text = Text.assemble((f"{card.pod}  ", "bold"), overflow="ellipsis", no_wrap=True)
    facts = [f"{card.gpus} GPUs"] if card.gpus > 1 else []
    if card.has_cards:
        facts.append(size_of(card))
    if card.room_ever_bytes is not None and card.room_now_bytes is not None:
        facts.append(f"room for {figures.gib(min(card.room_ever_bytes, card.room_now_bytes))}")
    if not card.has_cards:
        facts.append("no cards")
    text.append(", ".join(facts) + "  ")
    text.append(", ".join(filter(None, ("" if card.is_ready else "not ready", card.hole))), "red")
    return text


def _engines(card: CardView) -> Table:
    """A line an engine; the widths are fixed, so that engines of all cards stand below each other."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(overflow="fold", min_width=16)
    for width in (13, 21, 10, 21):
        table.add_column(min_width=width, no_wrap=True)
    table.add_column(no_wrap=True)
    for number, engine in enumerate(card.engines):
        name = engine.claim or f"{engine.model} (no claim)"
        table.add_row(
            Text(name, picture.colour(number)),
            Text(engine.state, _STATE_STYLES.get(engine.state, _OTHER_STATE)),
            _requests(engine),
            Text.assemble((f"{picture.FOOTPRINT} ", picture.colour(number)), gib(engine.charged_bytes)),
            _kv(engine, picture.colour(number)),
            _restarts(engine.restarts),
        )
    return table


def _requests(engine: EngineView) -> Text:
    if engine.requests_running is None or engine.requests_waiting is None:
        return Text("")
    if not engine.requests_running and not engine.requests_waiting:
        return Text("idle", "dim")
    text = Text(f"{engine.requests_running} running")
    if engine.requests_waiting:
        text.append(f", {engine.requests_waiting} waiting", "yellow")
    return text


def _kv(engine: EngineView, colour: str) -> Text:
    text = Text()
    if engine.kv_limit_bytes is not None:
        text.append(f"{picture.MAPPED} ", colour)
        text.append(f"{engine.kv_mapped_bytes / figures.GIB:.1f} of ")
    if engine.kv_limit_bytes is not None or engine.kv_bytes:
        text.append(f"{picture.LIMIT} ", colour)
        text.append(figures.gib(engine.kv_bytes))
    return text


def _restarts(count: int) -> Text:
    return Text(f"{count} restart{'s' if count > 1 else ''}", "red") if count else Text("")


def _waiting(rows: Sequence[WaitingRow]) -> Iterator[RenderableType]:
    if not rows:
        return
    yield Text("\nWithout a card", "bold")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(overflow="fold", max_width=30)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        needs = "" if row.need_bytes is None else f"needs {figures.gib(row.need_bytes)}"
        table.add_row(Text(row.name, "bold"), Text.assemble((row.phase, "yellow"), f"\n{needs}"), Text(row.why))
    yield table

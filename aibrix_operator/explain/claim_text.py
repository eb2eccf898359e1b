"""A claim's report as text for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aibrix_operator.api.conditions import MESSAGE_LIMIT, Condition, bounded
from aibrix_operator.explain import picture
from aibrix_operator.explain.claim_report import CandidateRow, ClaimReport, Fit, Outcome
from aibrix_operator.explain.making_way import Suggestion
from aibrix_operator.explain.views import CardView, EngineView
from aibrix_operator.ledger import figures

_FIT_STYLES = {Fit.YES: "green", Fit.LATER: "yellow", Fit.NO: "red", Fit.UNKNOWN: "dim"}
_UNKNOWN = "?"


def render(report: ClaimReport) -> RenderableType:
    """The whole report, top to bottom: what it needs, what was said, who could take it, who sits there, why not."""
    parts: list[RenderableType] = [_heading(report), _facts(report)]
    if report.candidates:
        parts += [_title("Candidate pods"), _candidates(report)]
        parts.append(_title("Who is on each card"))
        parts += [_card(row.card) for row in report.candidates]
    parts += [_title("Answer"), *_answer(report)]
    return Group(*parts)


def gib(size_bytes: int | None) -> str:
    """A size, or a question mark."""
    return _UNKNOWN if size_bytes is None else figures.gib(size_bytes)


def requests(engine: EngineView) -> str:
    """``3 running, 1 waiting``; a question mark where the engine cannot be asked."""
    if engine.requests_running is None or engine.requests_waiting is None:
        return _UNKNOWN
    waiting = f", {engine.requests_waiting} waiting" if engine.requests_waiting else ""
    return f"{engine.requests_running} running{waiting}"


def _title(text: str) -> Text:
    return Text(f"\n{text}", "bold")


def _heading(report: ClaimReport) -> Text:
    claim = report.claim
    gpus = "any number of GPUs" if claim.spec.engine != "vllm" else f"{claim.parallelism} GPU(s)"
    return Text.assemble(
        "ModelClaim ",
        (f"{claim.namespace}/{claim.name}", "bold"),
        f": model {bounded(claim.model)}, {claim.spec.engine} on {gpus}",
    )


def _facts(report: ClaimReport) -> Table:
    claim, seat = report.claim, report.claim.seat
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    if seat is not None:
        of = f"footprint {figures.gib(seat.footprint_bytes)} + KV floor {figures.gib(seat.kv_floor_bytes)}"
        table.add_row("needs", f"{figures.gib(seat.total_bytes)} on each GPU's card: {of}")
    table.add_row("phase", str(claim.status.phase or "none yet: the operator has not looked at it"))
    for condition in claim.status.conditions:
        style = "green" if condition.status == "True" else "yellow"
        said = Text.assemble((condition.status, style), f" {_said(condition)}")
        table.add_row(Text(bounded(condition.type)), said)
    return table


def _said(condition: Condition) -> str:
    """Reason and message. Statuses are written by whoever may, and are shown on a terminal."""
    return bounded(f"{condition.reason}: {condition.message}", 2 * MESSAGE_LIMIT)


def _candidates(report: ClaimReport) -> RenderableType:
    on = {i.pod for i in report.claim.status.instances}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("GiB on one GPU", no_wrap=True)
    for heading in ("usable", "promised", "held", "room\never", "room\nnow"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("fits", no_wrap=True)
    table.add_column("what it lacks", overflow="fold")
    for row in report.candidates:
        card = row.card
        fit = Text("it is here", "green") if card.pod in on else Text(row.fit, _FIT_STYLES[row.fit])
        sizes = (card.promised_bytes, card.held_bytes, card.room_ever_bytes, card.room_now_bytes)
        table.add_row(card.pod, _usable(row), *(_figure(size) for size in sizes), fit, Text(bounded(row.why_not)))
    return table


def _figure(size_bytes: int | None) -> str:
    """A size in a column of GiB; below zero when the card is overdrawn."""
    return _UNKNOWN if size_bytes is None else f"{size_bytes / figures.GIB:.1f}"


def _usable(row: CandidateRow) -> str:
    if row.card.usable_bytes is not None or not row.card.recorded_bytes:
        return _figure(row.card.usable_bytes)
    return f"≥ {_figure(row.card.recorded_bytes)}"


def _card(card: CardView) -> RenderableType:
    state = "" if card.is_ready else ", not ready"
    size = f", {size_of(card)}"
    if not card.has_cards:
        size = ", no cards: claims are placed here freely"
    heading = Text(f"{card.pod}{size}{state}")
    if not card.engines:
        return Group(heading, Text("  nobody", "dim"))
    parts: list[RenderableType] = [heading]
    if card.drawn_bytes is not None:
        parts.append(picture.bar(card.drawn_bytes, [e.share for e in card.engines]))
    parts.append(engines(card))
    return Group(*parts)


def size_of(card: CardView) -> str:
    """``95.1 GiB usable``, or what is known of it."""
    if card.usable_bytes is not None:
        return f"{figures.gib(card.usable_bytes)} usable"
    if card.recorded_bytes:
        return f"at least {figures.gib(card.recorded_bytes)} by its claims' records"
    return "size not known"


def engines(card: CardView) -> Table:
    """A line for each engine of a card, in the colours of its bar."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("claim", overflow="fold")
    for heading in ("footprint", "KV floor", "KV limit", "KV mapped"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state", overflow="fold")
    table.add_column("requests", no_wrap=True)
    for number, engine in enumerate(card.engines):
        name = engine.claim or f"{engine.model} (no claim)"
        table.add_row(
            Text(name, picture.colour(number)),
            gib(engine.charged_bytes),
            gib(engine.kv_floor_bytes),
            gib(engine.kv_bytes),
            gib(engine.kv_mapped_bytes if engine.kv_limit_bytes is not None else None),
            engine.state,
            requests(engine),
        )
    return table


def _answer(report: ClaimReport) -> Iterator[RenderableType]:
    if report.warning:
        yield Text(bounded(report.warning), "red")
    match report.outcome:
        case Outcome.PLACED:
            if not report.state:
                yield Text(f"It is recorded on {report.where}, which is not there any more.", "yellow")
            else:
                style = "green" if report.state == "serving" else "yellow"
                yield Text(f"It is placed on {report.where}; its engine: {report.state}.", style)
        case Outcome.FITS:
            where = f"{report.where} can take it now" if report.where else "a pod between two steps may take it"
            yield Text(f"It fits: {where}, and the operator places it at its next try, within a minute.", "green")
            yield from _compared(report)
        case Outcome.UNKNOWN:
            yield Text("No runtime can be reached from here, so sizes and room are not known: this is what statuses")
            yield Text("record. Run this command in the cluster's network to have all figures.")
            said = _said(report.condition) if report.condition else "nothing yet"
            yield Text.assemble("The operator says ", (said, "yellow"))
        case Outcome.LEAVES | Outcome.INVALID | Outcome.WAITS:
            yield Text(bounded(report.message), "yellow")
    if report.outcome is Outcome.WAITS:
        yield from _compared(report)
        yield from _suggestions(report)
    if report.older_waiting and report.outcome is not Outcome.PLACED:
        yield Text(f"Tried before it, because they are older: {', '.join(report.older_waiting)}.")


def _compared(report: ClaimReport) -> Iterator[RenderableType]:
    condition = report.condition
    if report.is_as_published:
        yield Text("Its Scheduled condition says the same.", "dim")
    elif condition is None:
        yield Text("The operator has said nothing of it yet: is it running?", "yellow")
    else:
        yield Text(f"Its Scheduled condition says {_said(condition)}", "dim")


def _suggestions(report: ClaimReport) -> Iterator[RenderableType]:
    yield _title("Who would have to go")
    if not report.suggestions:
        yield Text("No deletion of other claims makes it fit.")
    for suggestion in report.suggestions:
        yield Text(f"- {_suggestion(suggestion)}")


def _suggestion(s: Suggestion) -> str:
    freed = f"on {s.pod}: {figures.gib(s.freed_bytes)} come free"
    leaving = f"{', '.join(s.leaving)}, being deleted already"
    if not s.claims:
        return f"nobody more: wait for {leaving}, {freed}"
    busy = f", {s.requests} request(s) in flight now" if s.requests else ", no request in flight now"
    also = f", beside {leaving}" if s.leaving else ""
    return f"{', '.join(s.claims)} {freed}{busy}{also}"

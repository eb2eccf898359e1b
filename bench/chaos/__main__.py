"""``python -m bench.chaos``: kill at random for a while, print what came of it, and fail when a law was broken."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.chaos import course
from bench.chaos.course import Report, Settings


def main(
    minutes: Annotated[float, typer.Option(help="For how long somebody is killed every few seconds.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Draws the kills; by default another one each time.")] = None,
    cards: Annotated[int, typer.Option(min=2, help="Cards, one of them to spare.")] = 3,
) -> None:
    """Kill the leading operator, sidecars, engines and Pods of a sandbox while clients ask every model."""
    settings = Settings(minutes * 60, secrets.randbelow(1 << 31) if seed is None else seed, cards)
    console = Console()
    console.print(f"seed {settings.seed}")
    report = course.run(settings)
    console.print(_table(report))
    for sentence in report.broken:
        console.print(f"[bold red]broken:[/bold red] {sentence}", highlight=False)
    if report.broken:
        console.print(f"Once more: python -m bench.chaos --minutes {minutes:g} --seed {settings.seed} --cards {cards}")
        raise typer.Exit(1)


def _table(report: Report) -> Table:
    settings, answers = report.settings, report.answers
    table = Table(title=f"{settings.seconds:.0f} s of kills on {settings.cards} cards, seed {settings.seed}")
    table.add_column("")
    table.add_column("", justify="right")
    for kind, count in sorted(report.kills.items()):
        table.add_row(f"kills: {kind}", str(count))
    if report.takeovers_s:
        table.add_row("leader killed → another leads, longest, s", f"{max(report.takeovers_s):.1f}")
    table.add_row("answers", f"{answers.whole.total():,}")
    for why, count in sorted(answers.cut.items()):
        table.add_row(f"answers cut or not begun: {why}", str(count))
    table.add_row("answers cut without a reason", str(len(answers.unexplained)))
    table.add_row("looks that found no route", str(answers.unrouted))
    table.add_row("looks at the laws", str(report.looks))
    table.add_row("limits of a card above what it has, longest, s", f"{report.longest_over_s:.1f}")
    table.add_row("last kill → all Active and routed, s", f"{report.recovered_s:.1f}")
    table.add_row("broken", str(len(report.broken)))
    return table


if __name__ == "__main__":
    typer.run(main)

"""``python -m bench.soak``: ask three gateways for a while, print what came of it, fail when something was wrong."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.soak import course
from bench.soak.course import Report


def main(
    minutes: Annotated[float, typer.Option(help="For how long clients ask at half the peak.")] = 10,
    seed: Annotated[
        int | None, typer.Option(help="Draws what comes and goes; by default another one each time.")
    ] = None,
) -> None:
    """Three gateways over one Redis at half their peak, while claims and Pods come and go."""
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    console = Console()
    report = course.run(minutes * 60, seed)
    console.print(_table(report, seed))
    for sentence in report.broken:
        console.print(f"[bold red]broken:[/bold red] {sentence}", highlight=False)
    if report.broken:
        raise typer.Exit(1)


def _table(report: Report, seed: int) -> Table:
    tally = report.tally
    table = Table(title=f"{report.seconds:.0f} s at half the peak, seed {seed}")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_row("peak, requests/s", f"{report.peak:,.0f}")
    table.add_row("asked, requests/s", f"{tally.rate:,.0f}")
    table.add_row("requests", f"{tally.asked:,}")
    for status, count in sorted(tally.statuses.items()):
        table.add_row(f"answers: {status}", f"{count:,}")
    table.add_row("answers of another model", str(len(tally.strangers)))
    table.add_row("slowest answer, s", f"{tally.slowest_s:.2f}")
    for act, count in sorted(report.acts.items()):
        table.add_row(act, str(count))
    table.add_row("the lasting stream, s", f"{report.stream_s:.0f}")
    for name, (mib, growth) in sorted(report.memory.items()):
        table.add_row(f"{name}: MiB; growth in the last quarter", f"{mib:.1f}; {growth:+.1%}")
    table.add_row("last answer → every count is 0, s", f"{report.at_rest_s:.2f}")
    table.add_row("broken", str(len(report.broken)))
    return table


if __name__ == "__main__":
    typer.run(main)

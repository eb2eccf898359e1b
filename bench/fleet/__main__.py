"""``python -m bench.fleet``: what fleets of several sizes cost, a table, and the raw figures in a file."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import rich
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from bench.fleet import measure, placement
from bench.fleet.measure import Load, Result
from bench.fleet.stage import FLEET

_ROWS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("applied → all Active and routed, s", lambda r: f"{r.active_s:.1f}"),
    ("claims/s", lambda r: f"{r.claims / r.active_s:.0f}"),
    ("writes/claim: status, route", lambda r: _writes(r, "status", "route")),
    ("writes/claim: finalizer, neighbours, Events", lambda r: _writes(r, "finalizer", "neighbour", "event")),
    ("status + route writes/transition", lambda r: f"{r.writes_per_transition:.2f}"),
    ("idle pass over all, ms", lambda r: f"{r.passes['whole'].ms:.1f}"),
    ("idle pass over one Pod, ms", lambda r: f"{r.passes['some'].ms:.2f}"),
    ("they ask for, KiB", lambda r: f"{r.passes['whole'].kib:.0f}, {r.passes['some'].kib:.0f}"),
    ("passes/minute when idle", lambda r: f"{r.idle_passes:.0f}"),
    ("CPU when idle, % of a core", lambda r: f"{r.idle_cpu_percent:.1f}"),
    ("memory when idle, MiB", lambda r: f"{r.idle_rss_mib:.0f}"),
    ("writes when idle", lambda r: f"{r.idle_writes}"),
    ("wake asked → called, p50/p99 ms", lambda r: _percentiles(r.called_ms)),
    ("engine ready → routed, p50/p99 ms", lambda r: _percentiles(r.routed_ms)),
    (
        "both together, p50/p99 ms",
        lambda r: _percentiles([a + b for a, b in zip(r.called_ms, r.routed_ms, strict=True)]),
    ),
    ("kill -9 → all read, nothing pending, s", lambda r: f"{r.taken_over_s:.1f}"),
)


def _writes(result: Result, *kinds: str) -> str:
    return ", ".join(f"{result.writes_per_claim[kind]:.2f}" for kind in kinds)


def main(
    claims: Annotated[list[int] | None, typer.Option(help="Claims of a run (repeatable); 100, 300 and 1000.")] = None,
    silent: Annotated[int, typer.Option(help="Runtimes that never answer, in one more run of the last size.")] = 1,
    wakes: Annotated[int, typer.Option(help="Wakes of each run.")] = 100,
    idle_s: Annotated[float, typer.Option(help="How long the idle operator is measured.")] = 60,
    deadline_s: Annotated[float, typer.Option(help="The longest that placing may take.")] = 600,
    output: Annotated[Path, typer.Option(help="The JSON file for the raw figures.")] = Path("bench-fleet.json"),
) -> None:
    """Measure a fleet of each size over an API server of its own; then the pure placement."""
    sizes = claims or [100, 300, 1000]
    loads = [Load(size, 0, wakes, idle_s, deadline_s) for size in sizes]
    if silent:
        loads.append(dataclasses.replace(loads[-1], silent=silent))
    placed_per_s = placement.per_second()
    results: list[Result] = []
    for load in loads:
        rich.print(f"{load.title} claims")
        results.append(uvloop.run(measure.run(load)))
        # After each, so that a run that fails costs no figure of those before it.
        output.write_text(json.dumps(_raw(loads, results, placed_per_s), indent=1) + "\n")
    # Where output is no terminal, rich assumes 80 columns, too few for the table.
    Console(width=None if sys.stdout.isatty() else 120).print(_table(loads, results))
    rich.print(
        f"pure placement, {placement.CLAIMS:,} claims on {placement.CARDS:,} cards: {placed_per_s:,.0f} a second"
    )
    rich.print(f"raw figures: {output}")


def _percentiles(milliseconds: Sequence[float]) -> str:
    if len(milliseconds) < 2:
        return "–"
    hundredths = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return f"{hundredths[49]:.0f} / {hundredths[98]:.0f}"


def _raw(loads: Sequence[Load], results: Sequence[Result], placed_per_s: float) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processors": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load_average": os.getloadavg(),
        },
        "loads": [dataclasses.asdict(load) for load in loads],
        "runs": [dataclasses.asdict(result) for result in results],
        "placements_per_s": placed_per_s,
    }


def _table(loads: Sequence[Load], results: Sequence[Result]) -> Table:
    table = Table(title=f"claims, {FLEET.claims_per_pod} to a card")
    table.add_column("")
    for load in loads:
        table.add_column(load.title, justify="right", no_wrap=True)
    for title, show in _ROWS:
        table.add_row(title, *(show(result) for result in results))
    return table


if __name__ == "__main__":
    typer.run(main)

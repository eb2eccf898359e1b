"""``python -m bench.controller``: measure our operator beside its peers, print a table, keep the raw figures."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import rich
import typer
from rich.console import Console
from rich.table import Table

from bench.controller import measure
from bench.controller.measure import Load, Result
from bench.controller.peers import PEERS

_COLUMNS = (
    ("start\ns", "start_s", "{:.2f}"),
    ("present\n/s", "present_per_s", "{:.0f}"),
    ("stream\ns", "stream_s", "{:.2f}"),
    ("created\n/s", "created_per_s", "{:.0f}"),
    ("CPU ms\n/object", "cpu_ms_per_object", "{:.2f}"),
    ("peak RSS\nMiB", "peak_rss_mib", "{:.0f}"),
    ("writes\n/object", "writes_per_object", "{:.2f}"),
    ("Lease\nwrites", "lease_writes", "{:.0f}"),
)


def main(
    present: Annotated[int, typer.Option(help="Claims that are there when the operator starts.")] = 3000,
    created: Annotated[int, typer.Option(help="Claims created while it runs.")] = 3000,
    writers: Annotated[int, typer.Option(help="Concurrent writers that create them.")] = 8,
    workers: Annotated[int, typer.Option(help="Concurrent reconciles of the peers that let one choose.")] = 8,
    rounds: Annotated[int, typer.Option(help="Runs of each peer, interleaved.")] = 3,
    peer: Annotated[list[str] | None, typer.Option(help="Only these peers (repeatable).")] = None,
    deadline_s: Annotated[float, typer.Option(help="The longest one phase of a run may take.")] = 600,
    output: Annotated[Path, typer.Option(help="The JSON file for the raw figures.")] = Path("bench-controller.json"),
) -> None:
    """Measure each peer ROUNDS times over a fresh API server; medians go into the table."""
    known = {each.name: each for each in PEERS}
    unknown = set(peer or ()) - set(known)
    if unknown:
        raise typer.BadParameter(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = [known[name] for name in peer] if peer else list(PEERS)
    load = Load(present, created, writers, workers, deadline_s)
    results: list[Result] = []
    # Interleaved, so that whatever else the machine does falls on all of them alike.
    for number in range(rounds):
        for each in chosen:
            result = asyncio.run(measure.run(each, load))
            results.append(result)
            rich.print(f"round {number + 1}: {each.title}: {result.start_s} s, then {result.stream_s} s")
    output.write_text(json.dumps(_raw(load, results), indent=1) + "\n")
    # Where output is no terminal, rich assumes 80 columns, too few for the table.
    Console(width=None if sys.stdout.isatty() else 120).print(_table(results, load))
    rich.print(f"raw figures: {output}")


def _raw(load: Load, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processors": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load_average": os.getloadavg(),
        },
        "load": dataclasses.asdict(load),
        "runs": [dataclasses.asdict(result) for result in results],
    }


def _table(results: Sequence[Result], load: Load) -> Table:
    table = Table(title=f"{load.present} claims present, then {load.created} by {load.writers} writers (medians)")
    table.add_column("operator")
    for heading, _, _ in _COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for peer in PEERS:
        runs = [result for result in results if result.peer == peer.name]
        if runs:
            medians = [
                form.format(statistics.median(getattr(run, field) for run in runs)) for _, field, form in _COLUMNS
            ]
            table.add_row(peer.title, *medians)
    return table


if __name__ == "__main__":
    typer.run(main)

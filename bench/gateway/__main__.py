"""``python -m bench.gateway``: the gateway beside its peers, one run, a table, and the raw figures."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import rich
import typer
from rich.console import Console
from rich.table import Table

from aibrix_operator.sandbox.control_plane import free_port
from bench.gateway import contenders, load
from bench.gateway.contenders import CONTENDERS, KEY, Contender, Place, StartError
from bench.gateway.load import Cell, Load

CONNECTIONS = (1, 16, 64)
_SIZES = {"1 KB": 1024, "32 KB": 32 * 1024, "220 KB": 220 * 1024}
CELLS = (
    *(Cell(f"{name}, {count}", size, count) for name, size in _SIZES.items() for count in CONNECTIONS),
    *(Cell(f"stream, {count}", 1024, count, stream=True) for count in CONNECTIONS),
)
_WARM_S = 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """One contender under one load, once."""

    round: int
    contender: str
    cell: str
    load: Load
    cpu_ms_per_request: float | None


def main(
    rounds: Annotated[int, typer.Option(help="Runs of each contender, interleaved.")] = 5,
    seconds: Annotated[float, typer.Option(help="Length of one load.")] = 4,
    contender: Annotated[list[str] | None, typer.Option(help="Only these (repeatable).")] = None,
    cell: Annotated[list[str] | None, typer.Option(help="Only these loads, such as '1 KB, 64' (repeatable).")] = None,
    peers: Annotated[Path, typer.Option(help="Virtual environment with the peers.")] = Path(".cache/peers"),
    output: Annotated[Path, typer.Option(help="The JSON file for the raw figures.")] = Path("bench-gateway.json"),
) -> None:
    """Load each contender with each kind of request; medians go into the table."""
    chosen = _chosen({each.name: each for each in CONTENDERS}, contender, "contender")
    cells = _chosen({each.name: each for each in CELLS}, cell, "load")
    present = [each for each in chosen if each.needs is None or (peers / "bin" / each.needs).exists()]
    for absent in (each for each in chosen if each not in present):
        rich.print(f"[yellow]left out:[/yellow] {absent.name}: {absent.needs} is not in {peers}")
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        for each in cells:
            load.bodies(Path(folder) / each.name.replace(" ", "-"), each)
        # Interleaved, so that whatever else the machine does falls on all of them alike.
        for number in range(1, rounds + 1):
            for each in present:
                runs += _round(number, each, cells, Path(folder), seconds, peers / "bin")
    output.write_text(json.dumps(_raw(runs, seconds), indent=1) + "\n")
    for each in cells:
        Console(width=None if sys.stdout.isatty() else 120).print(_table(each, present, runs))
    rich.print(f"raw figures: {output}")


def _chosen(known: dict[str, Any], asked: Sequence[str] | None, kind: str) -> list[Any]:
    unknown = set(asked or ()) - set(known)
    if unknown:
        raise typer.BadParameter(f"no such {kind}: {', '.join(sorted(unknown))}; there are {'; '.join(known)}")
    return [known[name] for name in asked] if asked else list(known.values())


def _round(
    number: int, contender: Contender, cells: Sequence[Cell], folder: Path, seconds: float, peers: Path
) -> list[Run]:
    runs = []
    with contenders.engine() as ports:
        place = Place(folder, free_port(), ports, peers.absolute())
        try:
            with contenders.running(contender, place) as (url, process):
                for cell in cells:
                    bodies = folder / cell.name.replace(" ", "-")
                    load.run(url, cell, bodies, _WARM_S, KEY, contender.strategy, contender.user)
                    before = contenders.cpu_seconds(process) if process is not None else 0.0
                    measured = load.run(url, cell, bodies, seconds, KEY, contender.strategy, contender.user)
                    used = contenders.cpu_seconds(process) - before if process is not None else None
                    cpu = used * 1000 / measured.requests if used is not None and measured.requests else None
                    runs.append(Run(number, contender.name, cell.name, measured, cpu))
        except StartError as error:
            rich.print(f"[yellow]left out in round {number}:[/yellow] {contender.name}: {error}")
    rich.print(f"round {number}: {contender.name}")
    return runs


def _table(cell: Cell, chosen: Sequence[Contender], runs: Sequence[Run]) -> Table:
    table = Table(title=f"{cell.name} connection{'s' if cell.connections > 1 else ''}", title_justify="left")
    table.add_column("")
    for heading in ("requests/s", "p50 ms", "p99 ms", "CPU ms/request", "errors"):
        table.add_column(heading, justify="right")
    for contender in chosen:
        those = [run for run in runs if run.cell == cell.name and run.contender == contender.name]
        if not those:
            continue
        cpu = [run.cpu_ms_per_request for run in those if run.cpu_ms_per_request is not None]
        table.add_row(
            contender.name,
            f"{statistics.median(run.load.requests_per_s for run in those):,.0f}",
            f"{statistics.median(run.load.p50_ms for run in those):.2f}",
            f"{statistics.median(run.load.p99_ms for run in those):.2f}",
            f"{statistics.median(cpu):.3f}" if cpu else "–",
            f"{sum(run.load.errors for run in those)}",
        )
    return table


def _raw(runs: Sequence[Run], seconds: float) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processors": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load_average": os.getloadavg(),
        },
        "seconds": seconds,
        "runs": [dataclasses.asdict(run) for run in runs],
    }


if __name__ == "__main__":
    typer.run(main)

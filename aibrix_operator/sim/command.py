"""What ``aibrix-operator simulate`` runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aibrix_operator.sim import campaign
from aibrix_operator.sim.campaign import Report
from aibrix_operator.sim.play import play
from aibrix_operator.sim.report_text import failure_text, play_text, report_json, report_text
from aibrix_operator.sim.shrink import shrink

MOST_SHRUNK = 2
"""So many failures are cut down; the rest is only named."""


def run_one(seed: int, faults: Collection[str] | None, only: Collection[int] | None, console: Console) -> bool:
    """Play one seed, or some of its actions, and print its story; whether it passed."""
    outcome = play(seed, faults, only=only)
    console.print(play_text(outcome), markup=False, soft_wrap=True)
    if outcome.violations and only is None:
        console.print(failure_text(outcome, shrink(outcome, faults), faults), markup=False, soft_wrap=True)
    return not outcome.violations


def run_many(
    seeds: Sequence[int], faults: Collection[str] | None, jobs: int, console: Console, *, as_json: bool
) -> bool:
    """Play the seeds, print what failed and the figures; whether all passed."""
    with _progress(console) as progress:
        task = progress.add_task("seeds", total=len(seeds))

        def played(report: Report) -> None:
            progress.update(task, completed=report.seeds, description=f"seeds, {len(report.failed)} failed")

        report = campaign.run(seeds, faults, jobs, played)
    if as_json:
        console.print(report_json(report, faults), markup=False, soft_wrap=True)
        return not report.failed
    for outcome in report.failed[:MOST_SHRUNK]:
        console.print(
            failure_text(outcome, shrink(outcome, faults), faults), "", markup=False, soft_wrap=True, sep="\n"
        )
    if rest := report.failed[MOST_SHRUNK:]:
        console.print(f"failed too: seeds {', '.join(str(o.seed) for o in rest)}", soft_wrap=True)
    console.print(report_text(report), markup=False, soft_wrap=True)
    return not report.failed


def _progress(console: Console) -> Progress:
    """On a terminal alone; a file gets the result."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

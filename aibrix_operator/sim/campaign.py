"""Many seeds, played side by side, and the figures of all of them."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from aibrix_operator.sim.happening import REGISTRY
from aibrix_operator.sim.play import Outcome, play
from aibrix_operator.sim.schedule import FEWEST_KINDS

CHUNK = 4
"""Seeds handed to a worker at once."""


@dataclass(slots=True)
class Report:
    """The figures of a campaign; failures in the order of their seeds."""

    seeds: int = 0
    failed: list[Outcome] = field(default_factory=list)
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    takeovers_s: list[float] = field(default_factory=list)
    """After each killed leader: until another led."""
    with_few_faults: int = 0
    """Schedules with fewer than five faults."""

    def add(self, outcome: Outcome) -> None:
        """Count one play in."""
        self.seeds += 1
        if outcome.violations:
            self.failed.append(outcome)
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        self.happened += outcome.happened
        self.phases += outcome.phases
        self.reasons += outcome.reasons
        self.events += outcome.events
        self.takeovers_s += outcome.takeovers_s
        self.with_few_faults += outcome.faults.total() < FEWEST_KINDS

    @property
    def faults(self) -> Counter[str]:
        """Fault → how often it happened; 0 for those that never did."""
        return Counter({name: self.happened[name] for name, kind in REGISTRY.items() if kind.is_fault})

    @property
    def speed(self) -> float:
        """Virtual seconds per CPU second."""
        return self.virtual_s / self.cpu_s if self.cpu_s else 0.0


def run(
    seeds: Sequence[int],
    faults: Collection[str] | None,
    jobs: int,
    played: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Play all seeds in ``jobs`` processes. ``played`` is told after each."""
    report = Report()
    for outcome in _outcomes(seeds, faults, jobs):
        report.add(outcome)
        played(report)
    return report


def _outcomes(seeds: Sequence[int], faults: Collection[str] | None, jobs: int) -> Iterator[Outcome]:
    """In the order of the seeds, whoever is done first."""
    if jobs == 1 or len(seeds) == 1:
        yield from map(partial(_brief, faults), seeds)
        return
    # Forked, a worker starts with everything imported.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        yield from pool.map(partial(_brief, faults), seeds, chunksize=CHUNK)


def _brief(faults: Collection[str] | None, seed: int) -> Outcome:
    """The outcome, without the story of what went well."""
    outcome = play(seed, faults)
    return outcome if outcome.violations else dataclasses.replace(outcome, story=(), actions=())

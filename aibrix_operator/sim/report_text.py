"""A campaign as people and programs read it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection

from aibrix_operator.sim.campaign import Report
from aibrix_operator.sim.play import Outcome

SHOWN_VIOLATIONS = 5


def replay_command(outcome: Outcome, faults: Collection[str] | None, *, whole: bool = False) -> str:
    """The command that plays this very schedule again. ``whole``: all of its actions."""
    parts = [f"aibrix-operator simulate --seed {outcome.seed}"]
    if faults is not None:
        parts.append(f"--faults {','.join(sorted(faults))}")
    if not whole:
        parts.append(f"--only {','.join(map(str, outcome.actions)) or 'none'}")
    return " ".join(parts)


def failure_text(outcome: Outcome, shrunk: Outcome, faults: Collection[str] | None) -> str:
    """What a failing seed did, cut down, and how to see it again."""
    lines = [f"seed {outcome.seed} failed:", *_cut(shrunk.violations)]
    lines += [f"its schedule, cut from {len(outcome.actions)} actions to {len(shrunk.actions)}:", *shrunk.story]
    lines += [
        f"replay it: {replay_command(shrunk, faults)}",
        f"all of it: {replay_command(outcome, faults, whole=True)}",
    ]
    return "\n".join(lines)


def _cut(violations: Collection[str]) -> list[str]:
    shown = [f"  {text}" for text in list(violations)[:SHOWN_VIOLATIONS]]
    more = len(violations) - len(shown)
    return [*shown, f"  and {more} more"] if more > 0 else shown


def play_text(outcome: Outcome) -> str:
    """One seed that was asked for by its number: the whole story."""
    lines = [*outcome.story, f"{outcome.virtual_s:.0f} virtual seconds in {outcome.cpu_s:.2f} s of CPU"]
    lines.append(f"trace {outcome.trace}: the same for each play of this schedule by the same code")
    if outcome.violations:
        return "\n".join([*lines, "it fails:", *_cut(outcome.violations)])
    return "\n".join([*lines, "no law was broken, and all has settled"])


def report_text(report: Report) -> str:
    """The figures."""
    per_minute = report.virtual_s / 3600 / (report.cpu_s / 60) if report.cpu_s else 0.0
    spent = f"{report.virtual_s / 3600:,.1f} virtual hours in {report.cpu_s / 60:,.1f} CPU-minutes"
    lines = [
        f"{report.seeds} seeds, {len(report.failed)} failed",
        f"{spent}: {per_minute:.1f} per CPU-minute, {report.speed:,.0f} times real time per core",
        f"faults      {_counts(report.faults)}",
        f"phases      {_counts(report.phases)}",
        f"reasons     {_counts(report.reasons)}",
        f"Events      {_counts(report.events)}",
    ]
    if report.takeovers_s:
        slowest = max(report.takeovers_s)
        lines.append(f"{len(report.takeovers_s)} leaders killed, another led after {slowest:.1f} s at most")
    if report.with_few_faults:
        lines.append(f"{report.with_few_faults} schedules had fewer than five faults")
    return "\n".join(lines)


def _counts(counter: Counter[str]) -> str:
    return " · ".join(f"{name} {count:,}" for name, count in counter.most_common()) or "none"


def report_json(report: Report, faults: Collection[str] | None) -> str:
    """The figures for programs."""
    failed = [
        {"seed": o.seed, "violations": o.violations, "replay": replay_command(o, faults, whole=True)}
        for o in report.failed
    ]
    counters = {
        "faults": report.faults,
        "phases": report.phases,
        "reasons": report.reasons,
        "events": report.events,
    }
    value = {
        "seeds": report.seeds,
        "virtualSeconds": report.virtual_s,
        "cpuSeconds": report.cpu_s,
        **{name: dict(counter.most_common()) for name, counter in counters.items()},
        "takeoverSeconds": report.takeovers_s,
        "failed": failed,
    }
    return json.dumps(value, indent=2, ensure_ascii=False)

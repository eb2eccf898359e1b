"""``python -m supply.audit PIP_AUDIT [--strict]``: no locked package has a known hole.

Where the advisory database cannot be reached, that is said and nothing fails, unless with ``--strict``: so releases do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supply.licences import LOCK

_WITHIN_S = 300


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found out."""

    holes: tuple[str, ...]
    """One line each."""
    looked_at: int
    not_looked_at: int
    reason: str = ""
    """Why some or all could not be looked at."""

    @property
    def is_whole(self) -> bool:
        return not self.not_looked_at and not self.reason


def read(report: Any) -> Audit:
    """What ``pip-audit --format json`` printed."""
    holes = []
    skipped = [each for each in report["dependencies"] if "skip_reason" in each]
    for each in report["dependencies"]:
        for hole in each.get("vulns", ()):
            mended = ", ".join(hole.get("fix_versions", ())) or "no version yet"
            holes.append(f"{each['name']} {each['version']}: {hole['id']}, mended by {mended}")
    reason = skipped[0]["skip_reason"] if skipped else ""
    return Audit(tuple(holes), len(report["dependencies"]) - len(skipped), len(skipped), reason)


def run(pip_audit: Path) -> Audit:
    """Ask about every package of the lock."""
    command = [str(pip_audit), "--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(
            [*command, "--requirement", str(LOCK)], capture_output=True, text=True, timeout=_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Audit((), 0, 0, str(error))
    try:
        return read(json.loads(done.stdout))
    except ValueError:  # it cannot reach the database, and says so in its own words
        last = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        return Audit((), 0, 0, last[0])


def main(words: list[str]) -> int:
    """Print what was found; 1 for a hole, with ``--strict`` also for what could not be looked at."""
    audit = run(Path(words[0]))
    for line in audit.holes:
        sys.stderr.write(f"known hole: {line}\n")
    if audit.is_whole:
        sys.stdout.write(f"audit: {audit.looked_at} packages, {len(audit.holes)} known holes\n")
    else:
        sys.stdout.write(
            f"audit: SKIPPED for {audit.not_looked_at or 'all'} packages, {audit.looked_at} looked at: {audit.reason}\n"
        )
    return 1 if audit.holes or ("--strict" in words and not audit.is_whole) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

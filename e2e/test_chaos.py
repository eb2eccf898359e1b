"""A short run of what ``make chaos`` does for ten minutes: processes die at random, and no law is broken."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MINUTES, SEED = 1.0, 1
KINDS = ("leader", "sidecar", "engine", "pod")


def figure(output: str, title: str) -> int:
    """One figure of the table that the run prints."""
    found = re.search(rf"{title}\s*│\s*([\d,]+)", output)
    assert found is not None, f"no {title!r} in\n{output}"
    return int(found[1].replace(",", ""))


def test_a_minute_of_kills_breaks_no_law_and_cuts_no_answer_without_a_reason():
    command = [sys.executable, "-m", "bench.chaos", "--minutes", str(MINUTES), "--seed", str(SEED)]
    root = Path(__file__).resolve().parents[1]

    played = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=280, check=False)

    print(played.stdout)
    assert played.returncode == 0, played.stdout + played.stderr
    assert all(figure(played.stdout, f"kills: {kind}") >= 1 for kind in KINDS)
    assert figure(played.stdout, "answers cut without a reason") == 0
    assert figure(played.stdout, "answers") > 100
    assert figure(played.stdout, "looks at the laws") > 10

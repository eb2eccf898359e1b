"""As a newcomer: the quick start, and other pages whose commands need no cluster, typed word by word."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SET_UP = ("make setup binaries", "export PATH=")
"""What the machine of a test has done before."""


def typed(page):
    """The lines of a page's console blocks that begin with a dollar sign, with what continues them."""
    lines = []
    for block in CONSOLE.findall((ROOT / "docs" / page).read_text()):
        is_typed = False
        for line in block.splitlines():
            if line.startswith("$ "):
                lines.append(line.removeprefix("$ "))
                is_typed = True
            elif is_typed and lines[-1].endswith("\\"):
                lines[-1] += f"\n{line}"
            else:
                is_typed = False
    return [line for line in lines if not line.startswith(SET_UP)]


def play(page, folder, timeout_s):
    """One shell types all of it, and stops at the first command that fails."""
    tools = folder / "bin"
    tools.mkdir()
    for name, module in (
        ("aibrix-operator", "aibrix_operator.cli"),
        ("kubectl-aibrix", "aibrix_operator.plugin.command"),
    ):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        (tools / name).chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "AIBRIX_STATE_DIR": str(folder / "sandboxes"),
        "COLUMNS": "100",
    }
    script = "set -eo pipefail\n" + "\n".join(f"echo '$ {n}'\n{line}" for n, line in enumerate(typed(page), start=1))
    shell = ["bash", "-c", script]
    return subprocess.run(shell, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_the_quick_start_ends_with_an_answer_from_a_model(tmp_path):
    assert len(typed("quickstart.md")) > 15
    try:
        told = play("quickstart.md", tmp_path, 280)
    finally:
        down = [sys.executable, "-m", "aibrix_operator.cli", "sandbox", "down"]
        environ = {**os.environ, "AIBRIX_STATE_DIR": str(tmp_path / "sandboxes")}
        subprocess.run(down, env=environ, capture_output=True, timeout=60, check=False)  # where the shell stopped early
    assert told.returncode == 0, f"{told.stdout}\n{told.stderr}"
    assert '"role":"assistant"' in told.stdout.replace('": "', '":"')
    assert "Who would have to go" in told.stdout
    assert "<!doctype html>" in told.stdout


def test_the_sizing_guides_commands_work(tmp_path):
    told = play("sizing.md", tmp_path, 60)
    assert told.returncode == 0, told.stderr
    assert "qwen3-8b" in told.stdout

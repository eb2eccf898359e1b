"""Nodes on this machine leave nothing behind, also when a test run is killed in the middle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aibrix_operator.sandbox import processes
from e2e.api import eventually
from e2e.nodes import local

_SESSION = """
from e2e.nodes import local
cluster = local.start(["killed"])
print(cluster.folder, cluster.hub.wire, cluster.local_nodes[0].first.pid, flush=True)
input()
"""


@pytest.fixture
def session() -> Iterator[subprocess.Popen[str]]:
    if missing := local.why_not():
        pytest.skip(f"no local nodes here: {missing}")
    started = subprocess.Popen([sys.executable, "-c", _SESSION], stdin=-1, stdout=-1, text=True)
    yield started
    started.kill()
    started.communicate()


def test_a_killed_run_leaves_a_folder_that_the_next_one_removes(session: subprocess.Popen[str]):
    assert session.stdout is not None
    words = session.stdout.readline().split()
    folder, wire, first = Path(words[0]), words[1], processes.identify(int(words[2]))
    assert first is not None
    mounted = " /var "
    assert mounted in Path(f"/proc/{first.pid}/mounts").read_text()
    assert mounted not in Path("/proc/self/mounts").read_text()

    session.kill()
    session.wait()

    eventually("the node's processes are gone", lambda: not processes.is_alive(first), 5.0)
    eventually("the wire is gone", lambda: not Path(f"/sys/class/net/{wire}").exists(), 5.0)
    eventually("nothing runs out of the folder", lambda: not _commands_naming(folder), 5.0)
    assert folder.exists()
    local.remove_leftovers()
    assert not folder.exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{folder.name}")) + list(Path("/sys/fs/cgroup").glob(folder.name))


def _commands_naming(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # gone meanwhile
                continue
            if str(folder) in line:
                found.append(line)
    return found

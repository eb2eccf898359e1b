"""Start sandboxes with the tiny sidecar, and look at them from outside: by HTTP, kubectl and procfs."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aibrix_operator.sandbox import processes, up
from aibrix_operator.sandbox.processes import ProcessId
from aibrix_operator.sandbox.state import Sandbox

TINY_RUNTIME = (sys.executable, str(Path(__file__).with_name("tiny_runtime.py")))
_numbers = itertools.count(1)


def new_name() -> str:
    """A sandbox name that no other test session uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"


def options(cards: int = 1, **more: Any) -> up.Options:
    return up.Options(cards=["h20"] * cards, operators=0, runtime_command=TINY_RUNTIME, **more)


def eventually(condition: Callable[[], Any], within_s: float = 20.0) -> Any:
    """The first truthy value of ``condition``. An OSError counts as "not yet": whatever is asked may be restarting."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            value, problem = condition(), None
        except OSError as error:
            value, problem = None, error
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {condition} ({problem})")
        time.sleep(0.2)  # each look costs a Python client its start, on cores that the sandbox needs


def ask(address: str, path: str = "/healthz") -> dict[str, Any]:
    """What the sidecar at a Pod's address answers."""
    with urllib.request.urlopen(f"http://{address}:8080{path}", timeout=2) as answer:
        return json.loads(answer.read())


def kubectl(sandbox: Sandbox, *arguments: str) -> str:
    command = ["kubectl", "--kubeconfig", str(sandbox.kubeconfig), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def ready_pods(sandbox: Sandbox) -> list[up.PodRow]:
    return [pod for pod in up.status(sandbox.name).pods or () if pod.is_ready]


def both_ready(sandbox: Sandbox) -> list[up.PodRow]:
    """The two Pods of a sandbox with two cards, once both are ready."""
    return eventually(lambda: found if len(found := ready_pods(sandbox)) == 2 else None)


def processes_about(directory: Path) -> list[ProcessId]:
    """Every process that has the sandbox's folder in its command line or its environment."""
    mark, found = os.fsencode(directory), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            about = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if mark in about and (process := processes.identify(int(entry.name))):
            found.append(process)
    return found

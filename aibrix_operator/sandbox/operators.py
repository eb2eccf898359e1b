"""The operators of a sandbox: how they are started, and where their pages and metrics are."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from aibrix_operator.sandbox import control_plane, rights
from aibrix_operator.sandbox.state import Sandbox

OPERATOR = "operator"
_FILE = "operators.json"


@dataclass(frozen=True, slots=True)
class OperatorAddress:
    """Where one replica of a sandbox is."""

    name: str
    """Of its process and its log."""
    url: str
    """Probes and metrics."""
    page_url: str


def operator_name(replica: int) -> str:
    """Name of the process and its log; replicas count from 1, and the first needs no number."""
    return OPERATOR if replica == 1 else f"{OPERATOR}-{replica}"


def operator_command(kubeconfig: Path, liveness_url: str) -> list[str]:
    """Starts the operator against a sandbox."""
    command = [sys.executable, "-m", "aibrix_operator.cli", "operator"]
    return [*command, "--kubeconfig", str(kubeconfig), "--liveness", liveness_url]


def plan(sandbox: Sandbox, replicas: int) -> list[tuple[OperatorAddress, list[str]]]:
    """The addresses of ``replicas`` operators, each with the command that starts it; noted in the sandbox's folder."""
    found = []
    ports = control_plane.free_ports(2 * replicas)
    for number in range(replicas):
        url, page_url = (f"http://127.0.0.1:{port}" for port in ports[2 * number : 2 * number + 2])
        address = OperatorAddress(operator_name(number + 1), url, page_url)
        command = [
            *operator_command(rights.kubeconfig(sandbox.directory, OPERATOR), f"{url}/healthz"),
            "--page",
            page_url,
        ]
        found.append((address, command))
    _file(sandbox).write_text(json.dumps([asdict(address) for address, _ in found], indent=1))
    return found


def list_operators(sandbox: Sandbox) -> list[OperatorAddress]:
    """The operators that the sandbox was started with."""
    try:
        rows = json.loads(_file(sandbox).read_bytes())
    except FileNotFoundError:
        return []
    return [OperatorAddress(**row) for row in rows]


def _file(sandbox: Sandbox) -> Path:
    return sandbox.directory / _FILE

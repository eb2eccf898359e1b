"""The gateways of a sandbox: how they are started, and where clients find them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.gateway.envoy import process
from aibrix_operator.sandbox import control_plane, rights
from aibrix_operator.sandbox.state import Sandbox, SandboxError

GATEWAY = "gateway"
STRATEGY = "least-request"
GRACE_S = 3.0
"""Shorter than what the supervisor grants."""
_FILE = "gateways.json"


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where one gateway of a sandbox is."""

    name: str
    """Of its process and its log."""
    url: str
    """For clients: Envoy."""
    api_url: str
    """Readiness, metrics, status."""
    envoy_admin_url: str

    @property
    def port(self) -> int:
        """Of ``url``, whose host is 127.0.0.1."""
        return int(self.url.rpartition(":")[2])


def check_envoy() -> None:
    """SandboxError when there is no Envoy to start."""
    try:
        process.find()
    except process.EnvoyError as error:
        raise SandboxError(f"{error}; or start the sandbox without a gateway: --gateways 0") from error


def plan(sandbox: Sandbox, count: int) -> list[tuple[GatewayAddress, list[str]]]:
    """The addresses of ``count`` gateways, each with the command that starts it; noted in the sandbox's folder."""
    found = []
    ports = control_plane.free_ports(5 * count)
    for number in range(count):
        name = GATEWAY if number == 0 else f"{GATEWAY}-{number + 1}"
        listen, api, admin, questions, reports = (f"127.0.0.1:{port}" for port in ports[5 * number : 5 * number + 5])
        address = GatewayAddress(name, f"http://{listen}", f"http://{api}", f"http://{admin}")
        command = [sys.executable, "-m", "aibrix_operator.cli", "gateway"]
        command += ["--kubeconfig", str(rights.kubeconfig(sandbox.directory, GATEWAY))]
        command += ["--listen", listen, "--api", api, "--envoy-admin", admin, "--name", f"{sandbox.name}-{name}"]
        command += ["--questions", questions, "--reports", reports, "--envoy-concurrency", "1"]
        command += ["--default-strategy", STRATEGY, "--grace", str(GRACE_S)]
        found.append((address, command))
    rows = [{"name": a.name, "url": a.url, "api": a.api_url, "envoy_admin": a.envoy_admin_url} for a, _ in found]
    _file(sandbox).write_text(json.dumps(rows, indent=1))
    return found


def list_gateways(sandbox: Sandbox) -> list[GatewayAddress]:
    """The gateways that the sandbox was started with."""
    try:
        rows = json.loads(_file(sandbox).read_bytes())
    except FileNotFoundError:
        return []
    return [GatewayAddress(row["name"], row["url"], row["api"], row["envoy_admin"]) for row in rows]


def _file(sandbox: Sandbox) -> Path:
    return sandbox.directory / _FILE

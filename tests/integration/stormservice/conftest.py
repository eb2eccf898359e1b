"""The product's definitions on a real API server, and the operator's process over a real control plane."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.sandbox import binaries, control_plane, crds, processes, rights, rights_audit
from aibrix_operator.sandbox.control_plane import ControlPlane
from aibrix_operator.sandbox.processes import ProcessId


@pytest.fixture(scope="session")
def defined() -> set[str]:
    """API servers that know our kinds already."""
    return set()


@pytest.fixture
async def cluster(api_server, defined) -> AsyncIterator[Cluster]:
    """An administrator's client of an API server that knows our kinds."""
    async with await Cluster.connect(api_server.kubeconfig) as connected:
        if api_server.url not in defined:
            await crds.apply_crds(connected)
            defined.add(api_server.url)
        yield connected


@dataclass
class OperatorProcess:
    """The operator with the rights that the chart gives it; ``start`` and ``kill`` as often as a test likes."""

    plane: ControlPlane
    folder: Path
    process: ProcessId | None = None
    starts: int = 0
    logs: list[Path] = field(default_factory=list)

    def start(self) -> None:
        self.starts += 1
        log = self.folder / f"operator-{self.starts}.log"
        self.logs.append(log)
        command = [
            sys.executable,
            "-m",
            "aibrix_operator.cli",
            "operator",
            f"--kubeconfig={rights.kubeconfig(self.plane.directory, 'operator')}",
            "--lease-namespace=default",
            "--log-level=WARNING",
        ]
        pid = processes.start(command, log=log, environment=dict(os.environ), dies_with_parent=True)
        self.process = processes.identify(pid)

    def stop(self, grace_s: float = 10.0) -> None:
        if self.process is not None:
            processes.end(self.process, grace_s)
            self.process = None

    def kill(self) -> None:
        """As the kernel does."""
        self.stop(0.0)

    def errors(self) -> list[str]:
        """Lines of its logs in which a pass or a write failed; kopf's own, about watches of kinds just made, apart."""
        return [
            line
            for log in self.logs
            if log.exists()
            for line in log.read_text().splitlines()
            if " ERROR aibrix_operator" in line
        ]


@pytest.fixture(scope="module")
def whole_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with scheduler and controller manager."""
    wanted = (binaries.ETCD, binaries.API_SERVER, binaries.CONTROLLER_MANAGER, binaries.SCHEDULER)
    plane = control_plane.start_control_plane(
        tmp_path_factory.mktemp("whole-plane"),
        binaries.find_binaries(wanted, report=print),
        with_controllers=True,
        dies_with_parent=True,
        audit_policy=rights.audit_policy(),
    )
    yield plane
    plane.stop()
    rights_audit.keep(plane.directory, "stormservices")


@pytest.fixture(scope="module")
def operator_process(whole_plane, tmp_path_factory) -> Iterator[OperatorProcess]:
    made = OperatorProcess(whole_plane, tmp_path_factory.mktemp("operator"))
    with contextlib.ExitStack() as stack:
        stack.callback(made.stop)
        yield made

"""A control plane with all controllers, the operator as a process, and nodes whose kubelets are ours."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from warmup_stage import Stage

from aibrix_operator import definitions
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import Resource
from aibrix_operator.sandbox import binaries, control_plane, crds, rights, rights_audit
from aibrix_operator.sandbox.control_plane import ControlPlane


class OperatorProcess:
    """``aibrix-operator operator`` on that control plane, with the chart's rights."""

    def __init__(self, plane: ControlPlane, log: Path) -> None:
        self.log = log
        self._plane = plane
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin; again after a kill."""
        own = rights.kubeconfig(self._plane.directory, "operator")
        command = [sys.executable, "-m", "aibrix_operator.cli", "operator", "--kubeconfig", str(own)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "USER": "tester"})

    def kill(self) -> None:
        """At once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As a kubelet does."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(20)
            self.process = None

    def errors(self) -> list[str]:
        """Lines that no healthy operator logs."""
        text = self.log.read_text(errors="replace")
        return [line for line in text.splitlines() if " ERROR " in line or line.startswith("Traceback")]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    programs = binaries.find_binaries(report=print)
    made = control_plane.start_control_plane(
        tmp_path_factory.mktemp("plane"),
        programs,
        with_controllers=True,
        dies_with_parent=True,
        audit_policy=rights.audit_policy(),
    )
    rights.write_kubeconfigs(made)
    yield made
    made.stop()
    rights_audit.keep(made.directory, "warmups")


@pytest.fixture(scope="module")
def operator_process(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    made = OperatorProcess(plane, tmp_path_factory.mktemp("operator") / "log")
    yield made
    made.stop()
    assert made.errors() == []


@pytest.fixture
async def stage(plane: ControlPlane, operator_process: OperatorProcess) -> AsyncIterator[Stage]:
    """A namespace and a pool of nodes of the test's own."""
    async with await Cluster.connect(plane.kubeconfig) as cluster:
        if operator_process.process is None:
            await crds.apply_crds(cluster)
            await rights.grant(cluster)
            for definition in definitions.find():
                names = definition["spec"]
                # A kind that was established a moment ago answers 429 for a while, which kopf logs as errors.
                await cluster.list_all(Resource(names["group"], "v1alpha1", names["names"]["plural"]))
            operator_process.start()
        made = Stage(cluster)
        await made.open()
        async with made.kubelets.running():
            yield made
        await made.close()
    await asyncio.sleep(0.1)  # connections that were cut end their TLS in a later turn of the loop, and tell nobody

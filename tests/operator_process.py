"""The operator as a process over a control plane, with the rights that the chart gives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aibrix_operator.sandbox import binaries, control_plane, rights, rights_audit
from aibrix_operator.sandbox.control_plane import ControlPlane


@contextmanager
def audited_plane(directory: Path, name: str) -> Iterator[ControlPlane]:
    """A control plane with all controllers and the components' kubeconfigs; its audit log is kept as ``name``."""
    plane = control_plane.start_control_plane(
        directory,
        binaries.find_binaries(report=print),
        with_controllers=True,
        dies_with_parent=True,
        audit_policy=rights.audit_policy(),
    )
    try:
        rights.write_kubeconfigs(plane)
        yield plane
    finally:
        plane.stop()
        rights_audit.keep(plane.directory, name)


class OperatorProcess:
    """``aibrix-operator operator`` with ``options``; all of its lives write into one log."""

    def __init__(self, plane: ControlPlane, log: Path, *options: str) -> None:
        self.log = log
        self._plane, self._options = plane, options
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin; again after a kill."""
        own = rights.kubeconfig(self._plane.directory, "operator")
        command = [sys.executable, "-m", "aibrix_operator.cli", "operator", "--kubeconfig", str(own), *self._options]
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
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [line for line in text.splitlines() if " ERROR " in line or line.startswith("Traceback")]

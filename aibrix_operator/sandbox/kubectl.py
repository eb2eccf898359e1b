"""kubectl against one sandbox, as a demo's user would call it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from aibrix_operator.cluster.resource import Object


class KubectlError(RuntimeError):
    """kubectl is missing, or refused; the text is its own."""


class Kubectl:
    """Runs kubectl in the namespace ``default`` of the cluster that ``kubeconfig`` names."""

    def __init__(self, kubeconfig: Path) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise KubectlError("kubectl is not on PATH; the demo applies its claims with it: install it, and try again")
        self._command = [program, f"--kubeconfig={kubeconfig}", "--namespace=default"]

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints. Raises KubectlError with its complaint."""
        environ = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        done = subprocess.run(
            [*self._command, *arguments], env=environ, input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> Object:
        """One object, or a list of them."""
        found: Object = json.loads(self.run("get", *arguments, "--output=json"))
        return found

    def apply(self, body: Object) -> None:
        """Apply one manifest."""
        self.run("apply", "--filename=-", stdin=json.dumps(body))

"""Build the control plane's programs from published Go modules.

Called by :mod:`aibrix_operator.sandbox.binaries` under its lock. The modules and their checksums are pinned by the two
``go.mod`` and ``go.sum`` pairs in ``control_plane_build/``, so every machine builds the same bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

KUBERNETES_VERSION = "v1.37.2"
ETCD_VERSION = "v3.7.3"
COMBINED = "kubecp"
"""File name of the five-in-one Kubernetes binary; links to it select the component."""
GO_AT_LEAST = "1.26"


class BuildError(RuntimeError):
    """The programs could not be built; the text says why and what else would do. Shown to the user as it is."""


def build(into: Path, report: Callable[[str], None]) -> None:
    """Write ``kubecp`` and ``etcd`` into the existing folder ``into``. Takes minutes."""
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            "no Kubernetes control plane was found, and Go is not installed to build one. "
            f"Install Go {GO_AT_LEAST} or newer, or put etcd, kube-apiserver, kube-controller-manager and "
            "kube-scheduler on PATH or in the folder that KUBEBUILDER_ASSETS names."
        )
    report(f"building etcd {ETCD_VERSION} from Go modules (about 1 minute, once)")
    _go_build(go, "etcd", into / "etcd", "-s -w", ["go.etcd.io/etcd/server/v3"])
    report(f"building Kubernetes {KUBERNETES_VERSION} from Go modules (about 12 minutes on two cores, once)")
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    version = "k8s.io/component-base/version"
    stamps = f"-X {version}.gitVersion={KUBERNETES_VERSION} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    _go_build(go, "kubernetes", into / COMBINED, f"-s -w {stamps}", ["."])


def _go_build(go: str, module: str, output: Path, linker_flags: str, packages: Sequence[str]) -> None:
    template = resources.files("aibrix_operator.sandbox") / "control_plane_build" / module
    with tempfile.TemporaryDirectory(prefix="aibrix-go-") as scratch, resources.as_file(template) as source:
        # Go wants a writable module folder, and an installed package may not be one.
        shutil.copytree(source, scratch, dirs_exist_ok=True)
        command = [go, "build", "-trimpath", "-mod=readonly", "-ldflags", linker_flags, "-o", str(output), *packages]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # Go prints a line for each download first; the reason is at the end.
        raise BuildError(f"go build of {module} failed with status {done.returncode}: {done.stderr.strip()[-2000:]}")

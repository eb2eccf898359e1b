"""Programs beside the control plane that tests need: Helm, and CoreDNS for real nodes.

Found on ``PATH``, else in the user cache, else unpacked from a prebuilt archive beside the control plane's, else built
once from its Go module. Versions are pinned; Go's checksum database vouches for the modules.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from aibrix_operator.sandbox import binaries
from aibrix_operator.sandbox.binaries import Report
from aibrix_operator.sandbox.building import BuildError

HELM = "helm"
COREDNS = "coredns"
ARCHIVE = "tools.tar.xz"
_PACKAGES = {
    HELM: "helm.sh/helm/v3/cmd/helm@v3.22.0",
    COREDNS: "github.com/coredns/coredns@v1.15.0",
}


def find_tool(name: str, report: Report = lambda _: None) -> Path:
    """The executable of :data:`HELM` or :data:`COREDNS`, built when there is none (some minutes, once).

    Raises :class:`BuildError` when it has to be built and cannot be.
    """
    if on_path := shutil.which(name):
        return Path(on_path)
    package = _PACKAGES[name]
    target = binaries.cache_root() / "tools" / f"{name}-{package.rpartition('@')[2]}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # goes with the process, so a killed build never blocks the next
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".install-") as scratch:
                made = _unpack(name, Path(scratch), report) or _build(name, package, Path(scratch), report)
                made.rename(target)
    return target


def _unpack(name: str, scratch: Path, report: Report) -> Path | None:
    archive = binaries.prebuilt_archive(ARCHIVE)
    if archive is None:
        return None
    report(f"unpacking {name} from {archive}")
    with tarfile.open(archive, "r:xz") as tar:
        try:
            tar.extract(name, scratch, filter="data")
        except KeyError:
            return None
    return scratch / name


def _build(name: str, package: str, scratch: Path, report: Report) -> Path:
    go = shutil.which("go")
    if go is None:
        raise BuildError(f"{name} was not found on PATH, and Go is not installed to build it")
    report(f"building {package} (some minutes, once)")
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false",
        "GOWORK": "off",
        "GOBIN": str(scratch),
    }
    command = [go, "install", "-trimpath", "-ldflags", "-s -w", package]
    done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"go install {package} failed with status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return scratch / name

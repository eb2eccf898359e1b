"""A cluster of nodes that are Docker containers, made by ``kind``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from aibrix_operator.sandbox import processes
from e2e.nodes import tools_image

_PREFIX = "aibrix-e2e-"
_ADMIN = "e2e-admin"


class KindError(RuntimeError):
    """``kind`` or ``docker`` failed; the text is what it said."""


@dataclass(frozen=True, slots=True)
class KindCluster:
    """A running cluster; its methods are those of every provider (``provider.Cluster``)."""

    name: str
    folder: Path
    nodes: Sequence[str]
    node_address: str

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path | None:
        return None

    def load(self, image: Path) -> None:
        _run("kind", "load", "image-archive", str(image), "--name", self.name)

    def stop(self) -> None:
        _run("kind", "delete", "cluster", "--name", self.name)
        shutil.rmtree(self.folder)


def why_not() -> str | None:
    """What is missing for kind; None when nothing is."""
    for program in ("docker", "kind"):
        if shutil.which(program) is None:
            return f"kind needs {program}, which is not on PATH"
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0:
        return "kind needs Docker, and `docker info` fails"
    if shutil.which("busybox") is None:
        return "stories' own Pods need a busybox: see e2e/nodes/packages.sh"
    return None


def start(names: Sequence[str]) -> KindCluster:
    """Start a cluster with as many workers. They outlive us, so the next start ends those of killed runs."""
    remove_leftovers()
    name = f"{_PREFIX}{os.getpid()}"
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    nodes = [{"role": "control-plane"}, *({"role": "worker"} for _ in names)]
    shape = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": nodes}
    (folder / "kind.yaml").write_text(json.dumps(shape))
    admin = folder / "kind.kubeconfig"
    try:
        _run(
            *("kind", "create", "cluster", "--name", name, "--wait", "120s"),
            *("--config", str(folder / "kind.yaml"), "--kubeconfig", str(admin)),
        )
        containers = sorted(line for line in _run("kind", "get", "nodes", "--name", name).split() if "worker" in line)
        network = _run(
            "docker", "inspect", "--format", '{{(index .NetworkSettings.Networks "kind").IPAddress}}', containers[0]
        )
        cluster = KindCluster(name, folder, containers, network.strip())
        _write_token_kubeconfig(name, admin, cluster.kubeconfig)
        tools_image.write(folder / "tools.tar")
        cluster.load(folder / "tools.tar")
    except BaseException:
        subprocess.run(["kind", "delete", "cluster", "--name", name], capture_output=True, check=False)
        shutil.rmtree(folder)
        raise
    return cluster


def remove_leftovers() -> None:
    """Delete the clusters of runs whose process is gone."""
    for name in _run("kind", "get", "clusters").split():
        owner = re.fullmatch(rf"{_PREFIX}(\d+)", name)
        if owner and processes.identify(int(owner[1])) is None:
            _run("kind", "delete", "cluster", "--name", name)


def _write_token_kubeconfig(name: str, admin: Path, target: Path) -> None:
    """kind's own names a client certificate; the stories' client speaks with a token."""
    kubectl = ("docker", "exec", f"{name}-control-plane", "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf")
    _run(*kubectl, "-n", "kube-system", "create", "serviceaccount", _ADMIN)
    subject = f"--serviceaccount=kube-system:{_ADMIN}"
    _run(*kubectl, "create", "clusterrolebinding", _ADMIN, "--clusterrole=cluster-admin", subject)
    token = _run(*kubectl, "-n", "kube-system", "create", "token", _ADMIN, "--duration=24h").strip()
    document = yaml.safe_load(admin.read_text())
    document["users"][0]["user"] = {"token": token}
    target.write_text(yaml.safe_dump(document))
    target.chmod(0o600)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KindError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout

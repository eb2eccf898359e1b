"""Who is measured: how each operator is started, what it is given, and when a claim counts as done."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.cluster.resource import Object
from aibrix_operator.sandbox import binaries
from bench.controller.objects import NAMESPACE, Fleet

_HERE = Path(__file__).parent
_GIB = 1 << 30

# Five claims to a card, as upstream's largest test has it (39 models on 8 cards); every claim finds room.
ROOMY = Fleet(claims_per_pod=5, usable_bytes=5 * 48 * _GIB, footprint="30Gi", kv_floor="10Gi")
# Two claims of 40Gi to the only card; all others are refused with the card's figures.
CROWDED = Fleet(claims_per_pod=1 << 30, usable_bytes=95 * _GIB, footprint="30Gi", kv_floor="10Gi")
# The bare peers look at no Pod.
NO_FLEET = Fleet(claims_per_pod=0, usable_bytes=0, footprint="30Gi", kv_floor="10Gi")


@dataclass(frozen=True, slots=True)
class Peer:
    """One operator under measurement."""

    name: str
    title: str
    command: Callable[[Path], Sequence[str]]
    """From the kubeconfig's path, which is in the environment too."""
    is_done: Callable[[Object], bool]
    fleet: Fleet = NO_FLEET


def is_active(claim: Object) -> bool:
    return bool(claim.get("status", {}).get("phase") == "Active")


def is_judged(claim: Object) -> bool:
    """Placed, or refused with a reason."""
    return any(condition["type"] == "Scheduled" for condition in claim.get("status", {}).get("conditions", []))


def environment(kubeconfig: Path, workers: int) -> Mapping[str, str]:
    return {**os.environ, "KUBECONFIG": str(kubeconfig), "WORKERS": str(workers)}


def python_module(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _controller_runtime(kubeconfig: Path) -> Sequence[str]:
    return [str(build_go_peer())]


def _kopf(kubeconfig: Path) -> Sequence[str]:
    # Quiet and without peering, as the others: a log line an object would be measured too.
    return [sys.executable, "-m", "kopf", "run", "-q", "--standalone", "-n", NAMESPACE, str(_HERE / "peer_kopf.py")]


def _queue(kubeconfig: Path) -> Sequence[str]:
    return python_module("bench.controller.peer_queue")


def _operator(kubeconfig: Path) -> Sequence[str]:
    script = Path(sys.executable).with_name("aibrix-operator")
    return [str(script), "operator", "--kubeconfig", str(kubeconfig), "--log-level", "WARNING"]


PEERS = (
    Peer("controller-runtime", "Go, controller-runtime", _controller_runtime, is_active),
    Peer("kopf", "kopf @on.create", _kopf, is_active),
    Peer("queue", "our watch and work queue", _queue, is_active),
    Peer("operator", "aibrix-operator, placing", _operator, is_active, ROOMY),
    Peer("refused", "aibrix-operator, refusing", _operator, is_judged, CROWDED),
)


def build_go_peer() -> Path:
    """The compiled controller-runtime peer, built from Go modules into the user cache when its source changed."""
    source = _HERE / "peer-go"
    files = sorted(path for path in source.iterdir() if path.suffix in {".go", ".mod", ".sum"})
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    binary = binaries.cache_root() / "bench" / f"peer-go-{digest}"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        raise SystemExit("the controller-runtime peer needs Go to be built; install it or leave the peer out (--peer)")
    binary.parent.mkdir(parents=True, exist_ok=True)
    scratch = binary.with_suffix(f".{os.getpid()}")
    subprocess.run(
        [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(scratch), "."],
        cwd=source,
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )
    scratch.rename(binary)
    return binary

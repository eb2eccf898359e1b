"""What every benchmark over an API server starts: the server itself, and processes that end with it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.sandbox import binaries, control_plane, processes
from aibrix_operator.sandbox.control_plane import ControlPlane
from aibrix_operator.sandbox.processes import ProcessId
from bench.controller import objects

_CRD_FILE = Path(__file__).parents[2] / "crds" / "model.aibrix.ai_modelclaims.yaml"


@contextlib.contextmanager
def api_server() -> Iterator[tuple[ControlPlane, Path]]:
    """A fresh API server without controllers, and a folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix="aibrix-bench-") as scratch:
        folder = Path(scratch)
        programs = binaries.find_binaries((binaries.ETCD, binaries.API_SERVER), report=print)
        plane = control_plane.start_control_plane(folder, programs, with_controllers=False, dies_with_parent=True)
        try:
            yield plane, folder
        finally:
            plane.stop()


async def prepare(cluster: Cluster) -> None:
    """The benchmark's namespace, and ModelClaims as a kind that is served."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": objects.NAMESPACE}}
    await cluster.create(objects.NAMESPACES, None, namespace)
    await cluster.create(objects.CRDS, None, yaml.safe_load(_CRD_FILE.read_text()))
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(errors.NotFound):  # the new kind is served a moment later
                await cluster.list_all(MODEL_CLAIMS)
                break
            await asyncio.sleep(0.1)


@contextlib.contextmanager
def process(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[ProcessId]:
    """Runs ``command`` as long as the block; its log is shown when the block fails."""
    pid = processes.start(command, log=log, environment=environment, dies_with_parent=True)
    started = processes.identify(pid)
    if started is None:
        raise SystemExit(f"{command[0]} ended at once: {log.read_text()[-2000:]}")
    try:
        yield started
    except BaseException:
        print(f"--- end of {log.name}\n{log.read_text()[-4000:]}")
        raise
    finally:
        processes.end(started, grace_s=10)

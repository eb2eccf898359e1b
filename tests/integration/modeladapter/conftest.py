"""A control plane and the operator as a process, in a network where Pods have addresses that EndpointSlices take."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from adapter_clients import Clients
from adapter_stage import OPTIONS, Engines, Stage
from operator_process import OperatorProcess, audited_plane

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import Resource
from aibrix_operator.manifests import KINDS
from aibrix_operator.sandbox import crds, rights
from aibrix_operator.sandbox.control_plane import ControlPlane, free_port
from aibrix_operator.sandbox.own_network import own_network, why_not


class GatewayProcess:
    """``aibrix-operator gateway`` on that control plane, with an Envoy of its own."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.url, self.api = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.log = folder / "log"
        command = [sys.executable, "-m", "aibrix_operator.cli", "gateway", "--kubeconfig", str(plane.kubeconfig)]
        command += ["--listen", self.url.removeprefix("http://"), "--api", self.api.removeprefix("http://")]
        for name in ("envoy-admin", "questions", "reports"):
            command += [f"--{name}", f"unix:{folder / name}"]
        command += ["--envoy-concurrency", "1", "--default-strategy", "random", "--grace", "1"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    if reason := why_not():
        pytest.skip(reason)
    with own_network():
        yield


@pytest.fixture(scope="module")
def plane(network: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with audited_plane(tmp_path_factory.mktemp("plane"), "modeladapters") as made:
        yield made


@pytest.fixture(scope="module")
def operator_process(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    made = OperatorProcess(plane, tmp_path_factory.mktemp("operator") / "log", "--enable-runtime-sidecar")
    yield made
    made.stop()
    assert made.errors() == []


@pytest.fixture(scope="module")
def gateway_process(plane: ControlPlane, network: None) -> Iterator[GatewayProcess]:
    with tempfile.TemporaryDirectory(prefix="gw") as folder:  # a Unix socket's path is 107 bytes at most
        made = GatewayProcess(plane, Path(folder))
        yield made
        made.end()


@pytest.fixture
async def clients(stage: Stage, gateway_process: GatewayProcess) -> AsyncIterator[Clients]:
    """Of a gateway that is ready."""
    async with aiohttp.ClientSession() as session:
        made = Clients(session, gateway_process.url)
        await made.until_ready(gateway_process.api, gateway_process.log)
        yield made


@pytest.fixture
async def stage(plane: ControlPlane, operator_process: OperatorProcess) -> AsyncIterator[Stage]:
    """A namespace of the test's own."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(await Cluster.connect(plane.kubeconfig))
        engines = Engines()
        await engines.start()
        stack.push_async_callback(engines.stop)
        if operator_process.process is None:
            await crds.apply_crds(cluster)
            await rights.grant(cluster, OPTIONS)
            # A kind that was established a moment ago answers 429 for a while, which kopf logs as errors.
            for kind in KINDS:
                await cluster.list_all(Resource(kind.group, kind.version, kind.plural))
            operator_process.start()
        made = Stage(cluster, engines)
        await made.open()
        yield made
        await made.close()

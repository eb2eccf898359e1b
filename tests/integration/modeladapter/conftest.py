"""A control plane and the operator as a process, in a network where Pods have addresses that EndpointSlices take."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
from adapter_stage import Engines, Stage
from operator_process import OperatorProcess

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import Resource
from aibrix_operator.manifests import KINDS
from aibrix_operator.sandbox import binaries, control_plane, crds, rights, rights_audit
from aibrix_operator.sandbox.control_plane import ControlPlane
from aibrix_operator.sandbox.own_network import own_network, why_not


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    if reason := why_not():
        pytest.skip(reason)
    with own_network():
        yield


@pytest.fixture(scope="module")
def plane(network: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    made = control_plane.start_control_plane(
        tmp_path_factory.mktemp("plane"),
        binaries.find_binaries(report=print),
        with_controllers=True,
        dies_with_parent=True,
        audit_policy=rights.audit_policy(),
    )
    rights.write_kubeconfigs(made)
    yield made
    made.stop()
    rights_audit.keep(made.directory, "modeladapters")


@pytest.fixture(scope="module")
def operator_process(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    made = OperatorProcess(plane, tmp_path_factory.mktemp("operator") / "log", "--enable-runtime-sidecar")
    yield made
    made.stop()
    assert made.errors() == []


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
            await rights.grant(cluster)
            # A kind that was established a moment ago answers 429 for a while, which kopf logs as errors.
            for kind in KINDS:
                await cluster.list_all(Resource(kind.group, kind.version, kind.plural))
            operator_process.start()
        made = Stage(cluster, engines)
        await made.open()
        yield made
        await made.close()

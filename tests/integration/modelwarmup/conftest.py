"""A control plane with all controllers, the operator as a process, and nodes whose kubelets are ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from operator_process import OperatorProcess, audited_plane
from warmup_stage import Stage

from aibrix_operator import definitions
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import Resource
from aibrix_operator.sandbox import crds, rights
from aibrix_operator.sandbox.control_plane import ControlPlane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with audited_plane(tmp_path_factory.mktemp("plane"), "warmups") as made:
        yield made


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

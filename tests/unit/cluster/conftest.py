"""The fake API server and a client of it."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest
from cluster_fake_api_server import FakeApiServer, write_kubeconfig

from aibrix_operator.cluster.client import Cluster


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
def kubeconfig(api: FakeApiServer, tmp_path: pathlib.Path) -> pathlib.Path:
    return write_kubeconfig(tmp_path / "kubeconfig", api.url, "the-token")


@pytest.fixture
async def cluster(api: FakeApiServer, kubeconfig: pathlib.Path) -> AsyncIterator[Cluster]:
    async with await Cluster.connect(kubeconfig) as connected:
        yield connected

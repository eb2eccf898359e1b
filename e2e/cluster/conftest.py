"""One cluster of real nodes for all stories of this folder; each story has namespaces of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.api import ApiServer
from e2e.nodes import provider
from e2e.nodes.provider import Cluster

NODES = ("node-a", "node-b")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    try:
        made = provider.start(NODES)
    except provider.NoNodesError as error:
        pytest.skip(f"no real nodes here: {error}")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Iterator[ApiServer]:
    server = ApiServer(cluster.kubeconfig)
    yield server
    server.close()

"""The product's definitions on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.sandbox import crds


@pytest.fixture
async def cluster(api_server) -> AsyncIterator[Cluster]:
    """An administrator's client of an API server that knows our kinds."""
    async with await Cluster.connect(api_server.kubeconfig) as connected:
        await crds.apply_crds(connected)
        yield connected

"""The product's ModelClaim kind on a real API server, which judges what users send."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from api_claims import Claims
from kubernetes.aio import client

from aibrix_operator.cluster.client import Cluster
from aibrix_operator.sandbox import crds


@pytest.fixture
async def api(api_server) -> AsyncIterator[client.ApiClient]:
    async with api_server.client() as connected:
        yield connected


@pytest.fixture
async def claims(api_server, api, namespace) -> Claims:
    """ModelClaims of a fresh namespace."""
    async with await Cluster.connect(api_server.kubeconfig) as cluster:
        await crds.apply_crds(cluster)
    return Claims(api, namespace)

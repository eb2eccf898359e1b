"""A client of the real API server, and the product's ModelClaim kind in it."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import pytest
import yaml

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import MODEL_CLAIMS, Resource

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
CRD_FILE = pathlib.Path(__file__).parents[3] / "crds" / "model.aibrix.ai_modelclaims.yaml"


class HasKubeconfig(Protocol):
    kubeconfig: pathlib.Path


@pytest.fixture
async def cluster(api_server: HasKubeconfig) -> AsyncIterator[Cluster]:
    async with await Cluster.connect(api_server.kubeconfig) as connected:
        yield connected


@pytest.fixture
async def claims_known(cluster: Cluster, namespace: str) -> None:
    """The ModelClaim kind is installed and served."""
    with contextlib.suppress(errors.AlreadyExists):
        await cluster.create(CRDS, None, yaml.safe_load(CRD_FILE.read_text()))
    await eventually(lambda: cluster.list_all(MODEL_CLAIMS, namespace), unless=errors.NotFound)


async def eventually(
    ask: Callable[[], Awaitable[Any]], *, unless: type[Exception] | None = None, within_s: float = 20
) -> Any:
    """Ask the real server until the answer is true (and ``unless`` is not raised); TimeoutError after ``within_s``."""
    async with asyncio.timeout(within_s):
        while True:
            with contextlib.suppress(*([unless] if unless else [])):
                answer = await ask()
                if answer:
                    return answer
            await asyncio.sleep(0.02)

"""Apply this project's CustomResourceDefinitions to an API server."""

from __future__ import annotations

import asyncio

from aibrix_operator import definitions
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS as CRDS
from aibrix_operator.sandbox.state import SandboxError

_POLL_S = 0.05
_ESTABLISHED_WITHIN_S = 30.0


async def apply_crds(cluster: Cluster) -> None:
    """Create or update all of them, and wait until the API server serves them."""
    try:
        ours = definitions.find()
    except definitions.IncompleteInstallationError as error:
        raise SandboxError(str(error)) from error
    for definition in ours:
        name = definition["metadata"]["name"]
        try:
            await cluster.create(CRDS, None, definition)
        except errors.AlreadyExists:
            present = await cluster.get(CRDS, None, name)
            version = {"resourceVersion": present["metadata"]["resourceVersion"]}
            await cluster.replace(CRDS, None, name, {**definition, "metadata": {**definition["metadata"], **version}})
    for definition in ours:
        name = definition["metadata"]["name"]
        try:
            await asyncio.wait_for(_established(cluster, name), _ESTABLISHED_WITHIN_S)
        except TimeoutError:
            raise SandboxError(f"{name} was not established within {_ESTABLISHED_WITHIN_S:.0f} s") from None


async def _established(cluster: Cluster, name: str) -> None:
    while True:
        observed = (await cluster.get(CRDS, None, name)).get("status") or {}
        conditions = observed.get("conditions") or []  # null before the first of them
        if any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions):
            return
        await asyncio.sleep(_POLL_S)

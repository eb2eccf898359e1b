"""Apply this project's CustomResourceDefinitions to an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import Object, Resource
from aibrix_operator.sandbox.state import SandboxError

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
_POLL_S = 0.05
_ESTABLISHED_WITHIN_S = 30.0


def find_crds() -> list[Object]:
    """Every definition in the installed package's ``crds`` folder, else in that of the source checkout."""
    packaged = resources.files("aibrix_operator") / "crds"
    folders: list[Traversable] = [packaged, Path(__file__).resolve().parents[2] / "crds"]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    found = list(_read(folder)) if folder is not None else []
    if not found:
        raise SandboxError("no crds folder with a CustomResourceDefinition: the installation is incomplete")
    return found


async def apply_crds(cluster: Cluster) -> None:
    """Create or update all of them, and wait until the API server serves them."""
    definitions = find_crds()
    for definition in definitions:
        name = definition["metadata"]["name"]
        try:
            await cluster.create(CRDS, None, definition)
        except errors.AlreadyExists:
            present = await cluster.get(CRDS, None, name)
            version = {"resourceVersion": present["metadata"]["resourceVersion"]}
            await cluster.replace(CRDS, None, name, {**definition, "metadata": {**definition["metadata"], **version}})
    for definition in definitions:
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


def _read(folder: Traversable) -> Iterator[Object]:
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith((".yaml", ".yml")):
            for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
                if document and document.get("kind") == "CustomResourceDefinition":
                    yield document

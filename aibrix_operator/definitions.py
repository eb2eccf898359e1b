"""This project's CustomResourceDefinitions, as the installed package has them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml


class IncompleteInstallationError(RuntimeError):
    """The package lacks its definitions; the text says so to the user."""


def find() -> list[dict[str, Any]]:
    """Every definition in the package's ``crds`` folder, else in that of the source checkout, by file name."""
    packaged = resources.files("aibrix_operator") / "crds"
    folders: list[Traversable] = [packaged, Path(__file__).resolve().parents[1] / "crds"]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    found = list(_read(folder)) if folder is not None else []
    if not found:
        raise IncompleteInstallationError(
            "no crds folder with a CustomResourceDefinition: the installation is incomplete"
        )
    return found


def _read(folder: Traversable) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith((".yaml", ".yml")):
            for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
                if document and document.get("kind") == "CustomResourceDefinition":
                    yield document

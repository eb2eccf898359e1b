"""Helm, and what it makes of our chart."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from aibrix_operator.sandbox import building, tools

CHART = Path(__file__).resolve().parents[2] / "charts" / "aibrix-operator"
RELEASE, NAMESPACE = "aibrix", "aibrix-system"
KUBERNETES = building.KUBERNETES_VERSION

Object = dict[str, Any]


class HelmError(Exception):
    """Helm said no; the text is its own."""


def helm(*words: str, stdin: str = "") -> str:
    """What ``helm`` prints."""
    done = subprocess.run(
        [tools.find_tool(tools.HELM, print), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode != 0:
        raise HelmError(done.stdout + done.stderr)
    return done.stdout


def render_text(values: Object, chart: Path = CHART) -> str:
    """The manifests that a release with ``values`` has."""
    words = ["template", RELEASE, str(chart), "--namespace", NAMESPACE, "--kube-version", KUBERNETES, "--values", "-"]
    return helm(*words, stdin=json.dumps(values))


@cache
def _render(values: str) -> Rendered:
    return Rendered([obj for obj in yaml.load_all(render_text(json.loads(values)), yaml.CSafeLoader) if obj])


def render(values: Object | None = None) -> Rendered:
    """The same as objects; rendered once for each choice of values."""
    return _render(json.dumps(values or {}, sort_keys=True))


@dataclass(frozen=True)
class Rendered:
    """The objects of one release."""

    objects: list[Object]

    def of_kind(self, *kinds: str) -> list[Object]:
        return [obj for obj in self.objects if obj["kind"] in kinds]

    def one(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """The one object of that kind and name."""
        (found,) = (
            obj
            for obj in self.of_kind(kind)
            if obj["metadata"]["name"] == name and namespace in (None, obj["metadata"].get("namespace"))
        )
        return found

    def pod(self, deployment: str) -> Object:
        """The Pod template of a Deployment."""
        return self.one("Deployment", deployment)["spec"]["template"]

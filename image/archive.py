"""Write a folder as an image that container runtimes import: one layer, a configuration, and a manifest, in one tar.

The format is `docker save`'s, which containerd, Docker and Podman all read. Equal folders make equal bytes: owners,
times and order are fixed.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_EPOCH = 1_577_836_800
"""Of every file: 2020-01-01. Zip-based tools refuse times before 1980."""
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Image:
    """What a container is started with by default."""

    name: str
    """With its tag: ``registry.example/aibrix-operator:0.8.0``."""
    entrypoint: Sequence[str]
    command: Sequence[str]
    environment: Mapping[str, str]
    user: int
    labels: Mapping[str, str]


def write(root: Path, image: Image, into: Path) -> None:
    """Write ``root`` as ``image`` into the file ``into``, whole or not at all."""
    partial = into.with_name(into.name + ".partial")
    layer = into.with_name(into.name + ".layer")
    try:
        with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(root.rglob("*")):
                tar.add(path, str(path.relative_to(root)), recursive=False, filter=_anonymous)
        with layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        configuration = json.dumps(_configuration(image, digest), sort_keys=True).encode()
        name = f"{hashlib.sha256(configuration).hexdigest()}.json"
        manifest = [{"Config": name, "RepoTags": [image.name], "Layers": [f"{digest}/layer.tar"]}]
        with tarfile.open(partial, "w") as tar:
            _add(tar, name, configuration)
            member = _anonymous(tar.gettarinfo(layer, f"{digest}/layer.tar"))
            with layer.open("rb") as file:
                tar.addfile(member, file)
            _add(tar, "manifest.json", json.dumps(manifest).encode())
        partial.replace(into)
    finally:
        layer.unlink(missing_ok=True)
        partial.unlink(missing_ok=True)


def _configuration(image: Image, layer_digest: str) -> dict[str, Any]:
    return {
        "architecture": _MACHINES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "User": str(image.user),
            "Entrypoint": list(image.entrypoint),
            "Cmd": list(image.command),
            "Env": [f"{name}={value}" for name, value in image.environment.items()],
            "Labels": dict(image.labels),
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created_by": "python -m image"}],
    }


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = _EPOCH
    return member


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(_anonymous(member), io.BytesIO(content))

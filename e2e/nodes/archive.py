"""Small images for nodes without a registry, written as the archive that ``docker save`` writes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

BUSYBOX_IMAGE = "localhost/aibrix-e2e/busybox:1"
"""Pause image of local nodes, and the tools of stories' own Pods."""


def write_busybox(busybox: Path, target: Path) -> None:
    """An image of the static ``busybox`` alone, each applet under its name; it waits for ever unless told otherwise."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "tmp", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        program = tarfile.TarInfo("bin/busybox")
        program.mode, program.size = 0o755, busybox.stat().st_size
        with busybox.open("rb") as file:
            tar.addfile(program, file)
        for applet in ("cat", "httpd", "nc", "nslookup", "sh", "sleep", "tail", "wget"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    write_archive(layer.getvalue(), BUSYBOX_IMAGE, ["/bin/tail", "-f", "/dev/null"], target)


def write_archive(layer: bytes, reference: str, command: Sequence[str], target: Path) -> None:
    """An archive of one image of one layer, which is a tar file."""
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": list(command), "Env": ["PATH=/bin"], "User": "65532:65532"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": [f"{digest}.tar"]}]
    with tarfile.open(target, "w") as tar:
        for name, content in (
            (f"{digest}.tar", layer),
            ("config.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))

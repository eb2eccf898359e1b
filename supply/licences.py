"""``python -m supply.licences``: every locked package that a release brings has a licence that we may pass on.

Licences are read from the installed packages' own metadata: the SPDX expression, else the classifiers, else the text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from packaging.markers import Marker

LOCK = Path(__file__).resolve().parents[1] / "requirements" / "runtime.lock"
ALLOWED = frozenset(
    {
        "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib",
    }
)  # fmt: skip
"""Those that ask for no more than to be named; MPL-2.0's duties end at its own files, which we do not change."""

SPELLINGS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Words of older metadata → what they mean."""

_PINNED = re.compile(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+?))? \\$", re.M
)


def locked(text: str) -> Iterator[tuple[str, str]]:
    """Name and version of each package that ``text``, a lock, brings to this machine."""
    for match in _PINNED.finditer(text):
        if match["marker"] is None or Marker(match["marker"]).evaluate():
            yield match["name"], match["version"]


class Described(Protocol):
    """Metadata of a distribution, or a message like it."""

    def get_all(self, name: str, failobj: None = None) -> list[Any] | None:
        """Every value of a row of that name."""
        ...


def licence_of(described: Described) -> str:
    """The package's licence as an SPDX expression; empty when it says none that we know the word for."""
    expression = "".join(described.get_all("License-Expression") or ())
    if expression:
        return expression
    rows = described.get_all("Classifier") or ()
    named = [row.rpartition("::")[2].strip() for row in rows if row.startswith("License ::")]
    text = "".join(described.get_all("License") or ()).strip()
    words = [text] if text and "\n" not in text else named
    return " OR ".join(SPELLINGS.get(word, word) for word in words)


def is_allowed(expression: str) -> bool:
    """Whether all parts joined by AND are allowed, and of those joined by OR at least one."""
    try:
        value, rest = _any_of(re.findall(r"\(|\)|[^()\s]+", expression))
    except IndexError:
        return False
    return value and not rest


def _any_of(tokens: list[str]) -> tuple[bool, list[str]]:
    value, tokens = _all_of(tokens)
    while tokens and tokens[0] == "OR":
        other, tokens = _all_of(tokens[1:])
        value = value or other
    return value, tokens


def _all_of(tokens: list[str]) -> tuple[bool, list[str]]:
    value, tokens = _one(tokens)
    while tokens and tokens[0] == "AND":
        other, tokens = _one(tokens[1:])
        value = value and other
    return value, tokens


def _one(tokens: list[str]) -> tuple[bool, list[str]]:
    if tokens[0] == "(":
        value, tokens = _any_of(tokens[1:])
        return value, tokens[1:]
    return tokens[0] in ALLOWED, tokens[1:]


def main() -> int:
    """Print who is in the way; 1 when anybody is."""
    wrong = []
    packages = list(locked(LOCK.read_text()))
    for name, _ in packages:
        try:
            licence = licence_of(metadata.metadata(name))
        except metadata.PackageNotFoundError:
            wrong.append(f"{name}: not installed here, so its licence is not known")
            continue
        if not is_allowed(licence):
            wrong.append(f"{name}: {licence or 'says no licence'}")
    if not packages:
        wrong.append(f"{LOCK} names no package")
    for line in wrong:
        sys.stderr.write(f"licence not allowed: {line}\n")
    if not wrong:
        sys.stdout.write(f"licences: {len(packages)} packages, all allowed\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

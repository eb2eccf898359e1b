"""Read the files that a plan is asked for, as kubectl's ``-f`` takes them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from aibrix_operator.explain.declared import Source, UnusableFiles

STDIN = "-"
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def read_sources(names: Sequence[str]) -> tuple[Source, ...]:
    """The text of each file, of standard input for ``-``, and of every manifest right in a folder, by name.

    Raises UnusableFiles for those that cannot be read.
    """
    sources, problems = [], []
    for name in names:
        for path in _paths(name):
            try:
                text = sys.stdin.read() if name == STDIN else path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
                problems.append(f"{path}: {reason}")
            else:
                sources.append(Source("standard input" if name == STDIN else str(path), text))
    if problems:
        raise UnusableFiles(problems)
    return tuple(sources)


def _paths(name: str) -> list[Path]:
    path = Path(name)
    if name != STDIN and path.is_dir():
        return sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES)
    return [path]

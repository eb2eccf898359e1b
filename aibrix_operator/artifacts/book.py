"""What a folder holds of an artifact, written beside its files: which versions were begun, and that all are there.

One folder holds one artifact. Files that the book does not name are nobody's business here: they stay.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MARKER: Final = ".aibrix_download_complete"
"""Its presence says that all files are there. AIBrix's sidecar leaves an empty one; ours names the address."""
BOOK: Final = ".aibrix_download_state"
PART_SUFFIX: Final = ".aibrix_part"


@dataclass(frozen=True, slots=True)
class Book:
    """The artifact that a folder is for, and the version of each of its files."""

    url: str
    versions: Mapping[str, str] = field(default_factory=dict)
    """Path → version, of files that are there or begun."""


def read_book(folder: Path) -> Book | None:
    """None where there is none, or none that can be read: then nothing is known of what lies there."""
    try:
        content = json.loads((folder / BOOK).read_text(encoding="utf-8"))
        return Book(str(content["url"]), {str(k): str(v) for k, v in content["versions"].items()})
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return None


def write_book(folder: Path, book: Book) -> None:
    """Replace the book at once."""
    _replace(folder / BOOK, json.dumps({"url": book.url, "versions": dict(book.versions)}, sort_keys=True))


def is_complete(folder: Path, url: str) -> bool:
    """Whether the folder holds all of this very artifact. A marker of another address, or of none, is no answer."""
    try:
        return bool(json.loads((folder / MARKER).read_text(encoding="utf-8"))["url"] == url)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def write_marker(folder: Path, url: str, size_bytes: int) -> None:
    """Say that all files are there."""
    _replace(folder / MARKER, json.dumps({"url": url, "bytes": size_bytes}))


def remove_marker(folder: Path) -> None:
    """Before anything in the folder changes."""
    (folder / MARKER).unlink(missing_ok=True)


def remove_file(folder: Path, path: str) -> None:
    """A file of the book and what is begun of it, with the folders that are empty then."""
    target = folder / path
    for each in (target, part_of(target)):
        each.unlink(missing_ok=True)
    for parent in target.parents:
        if parent == folder:
            break
        with contextlib.suppress(OSError):  # not empty, or gone already
            parent.rmdir()


def part_of(target: Path) -> Path:
    """Where a file grows until it is whole."""
    return target.with_name(target.name + PART_SUFFIX)


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".new")
    with draft.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)

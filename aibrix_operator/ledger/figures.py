"""Sizes as people read them in conditions and Events. Called wherever a message names bytes."""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30


def gib(size_bytes: int) -> str:
    """``40.0 GiB``: one decimal, an exact half rounded to the even digit as C's and Go's ``%.1f`` do.

    A negative size is an overdrawn room; it reads ``0.0 GiB``, because nobody can be offered less than nothing.
    """
    return f"{max(size_bytes, 0) / GIB:.1f} GiB"


def size(size_bytes: int) -> str:
    """What an engine holds asleep, in the largest unit it has one of: ``1.3 GiB``, ``256.0 MiB``, ``60 bytes``."""
    if size_bytes >= GIB:
        return gib(size_bytes)
    if size_bytes >= MIB:
        return f"{size_bytes / MIB:.1f} MiB"
    return f"{size_bytes} bytes"

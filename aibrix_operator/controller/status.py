"""A status is written whole, as the merge patch that makes it so, and not at all where nothing differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that makes ``new`` of ``old``; empty when they are equal. None in ``new`` is no value."""
    patch: dict[str, Any] = {}
    for key in old.keys() - new.keys():
        patch[key] = None
    for key, wanted in new.items():
        has = old.get(key)
        if wanted == has:
            continue
        if isinstance(wanted, Mapping) and isinstance(has, Mapping):
            patch[key] = difference(has, wanted)
        else:
            patch[key] = wanted
    return dict(sorted(patch.items()))

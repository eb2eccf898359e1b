"""Names and hashes of what a StormService makes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

MAX_NAME = 63
MAX_PREFIX = 58
"""Of a generateName: the API server appends five characters."""
_HASH_LENGTH = 6
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def shortened(name: str, limit: int = MAX_NAME) -> str:
    """``name``, or its first character and its end where it is too long: the end tells objects apart, and a name
    begins with a letter."""
    return name if len(name) <= limit else name[0] + name[1 - limit :]


def canonical(value: Any) -> str:
    """The same text for values that mean the same: keys in order, nothing said about what is null."""
    return json.dumps(_without_null(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def short_hash(text: str) -> str:
    """Six characters of a-z and 0-9."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    digits = []
    for _ in range(_HASH_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)


def template_hash(template: Mapping[str, Any]) -> str:
    """The hash of a role's Pod template: nothing else may replace Pods."""
    return short_hash(canonical(template))


def roleset_prefix(storm: str) -> str:
    """The generateName of a StormService's RoleSets."""
    return f"{storm}-roleset-"[:MAX_PREFIX]


def revision_name(storm: str, hash_: str) -> str:
    """Also the value of a label, so it may be no longer than one."""
    return shortened(f"{storm}-{hash_}")


def slot_name(roleset: str, role: str, hash_: str, slot: int) -> str:
    """Name of a stateful role's Pod, and of every PodSet."""
    return shortened(f"{roleset}-{role}-{hash_}-{slot}")


def pool_prefix(roleset: str, role: str) -> str:
    """The generateName of a stateless role's Pods."""
    return shortened(f"{roleset}-{role}-", MAX_PREFIX)


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_null(v) for k, v in value.items() if v is not None}
    return [_without_null(v) for v in value] if isinstance(value, (list, tuple)) else value

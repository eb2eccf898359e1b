"""What a simulated model weighs and how fast it is; read once when an engine starts.

``AIBRIX_SIM_PROFILES`` names a JSON file: model name, artifact or ``default`` -> the fields below that differ. Sizes
are bytes or texts such as ``6Gi``. An engine takes the entry of its served model name, else of its ``--model`` value;
fields that the entry leaves out come from ``default``, then from here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from aibrix_operator.sim import card

PROFILES_ENV = "AIBRIX_SIM_PROFILES"

_MIB = 1024**2


class ProfileError(ValueError):
    """The profile file can't be used; the engine says so and exits."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Figures of one model. Memory is per card: a tensor-parallel engine holds it on each of its cards."""

    boot_seconds: float = 1.0  # from the mapped footprint to the first answer
    stop_seconds: float = 0.0  # from SIGTERM to the exit
    sleep_seconds: float = 0.0  # what putting the weights away takes, levels 1 and 2
    wake_seconds: float = 0.0  # what bringing them back takes
    footprint_bytes: int = 6 * 1024 * _MIB  # held while awake, KV not counted
    asleep_footprint_bytes: int = 300 * _MIB  # held while asleep
    kv_pool_bytes: int | None = None  # the segment's limit at every start; None is all of the card's usable memory
    kv_bytes_per_token: int = 128 * 1024
    kv_page_bytes: int = 2 * _MIB  # KV is mapped in whole pages
    prealloc_bytes: int = 0  # mapped at the start, and kept of what finished requests free
    tokens_per_second: float = 100.0  # per running request
    prefill_tokens_per_second: float = 20_000.0  # per request, before its first token
    max_running_requests: int = 256
    max_model_len: int = 4096


def load(path: str | None, *names: str) -> Profile:
    """The profile of the first of ``names`` that the file at ``path`` knows; no path means the figures above.

    Raises ProfileError for an unreadable file, an unknown field and a value that no field can have.
    """
    if not path:
        return Profile()
    try:
        entries = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ProfileError(f"profiles {path}: {error}") from error
    if not isinstance(entries, dict):
        raise ProfileError(f"profiles {path}: expected an object of model name to profile")
    profile = _overlay(Profile(), entries.get("default", {}), f"profiles {path}: default")
    for name in names:
        if name in entries:
            return _overlay(profile, entries[name], f"profiles {path}: {name}")
    return profile


def _overlay(base: Profile, entry: Mapping[str, Any], where: str) -> Profile:
    kinds = {field.name: field.type for field in fields(Profile)}
    if not isinstance(entry, dict) or (unknown := set(entry) - set(kinds)):
        raise ProfileError(f"{where}: {sorted(unknown) if isinstance(entry, dict) else entry} is no field of a profile")
    return replace(base, **{name: _value(name, kinds[name], value, where) for name, value in entry.items()})


def _value(name: str, kind: Any, value: Any, where: str) -> Any:
    if "_bytes" in name and isinstance(value, str):
        try:
            return card.parse_size(value)
        except ValueError as error:
            raise ProfileError(f"{where}.{name}: {error}") from error
    if value is None and kind == int | None:
        return None
    whole = kind is not float
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or value < 0:
        raise ProfileError(f"{where}.{name}: {value!r} is not a {'whole ' if whole else ''}number of at least 0")
    positive = (
        "kv_page_bytes",
        "tokens_per_second",
        "prefill_tokens_per_second",
        "max_running_requests",
        "max_model_len",
    )
    if name in positive and not value:
        raise ProfileError(f"{where}.{name}: must be above 0")
    return value

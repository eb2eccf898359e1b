"""How the layer behaves: options of the code, and the settings of a process, ``AIBRIX_STATESYNC_*``."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_settings import BaseSettings, SettingsConfigDict

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class Options:
    """A number that is 0 or less is replaced by its default."""

    period_s: float = 10.0
    op_timeout_s: float = 30.0
    """For a whole cycle."""
    record_ttl_s: float = 120.0
    stop_wait_s: float = 90.0
    scan_count: int = 500
    mget_batch: int = 200
    write_batch: int = 25
    key_prefix: str = "aibrix"
    announce: bool = True
    """Tell peers of changes at once. Off: they learn them by their next cycle, and each cycle pulls everything."""
    announce_interval_s: float = 0.005
    """Changes within it travel together."""
    repair_period_s: float = 60.0
    """How often everything is pulled although nothing is known to be missing."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, str | bool) and value <= 0:
                object.__setattr__(self, field.name, field.default)


def parse_duration_s(text: object) -> object:
    """Seconds, from a number or from a duration as Go writes it (``1m30s``, ``500ms``). Raises ``ValueError``."""
    if not isinstance(text, str):
        return text
    stripped = text.strip()
    if _PART.sub("", stripped) == "" and stripped:
        return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(stripped))
    try:
        return float(stripped)
    except ValueError:
        raise ValueError(f"{text!r} is no duration: write 10s, 1m30s, 500ms or a number of seconds") from None


Seconds = Annotated[float, BeforeValidator(parse_duration_s)]


class StatesyncSettings(BaseSettings):
    """What a process reads from its environment. Each field is one variable, ``AIBRIX_STATESYNC_`` and its name."""

    model_config = SettingsConfigDict(env_prefix="AIBRIX_STATESYNC_", frozen=True, extra="ignore")

    enabled: bool = False
    sync_period: Seconds = 10.0
    record_ttl: Seconds = 120.0
    repair_period: Seconds = 60.0
    announce: bool = True
    """False where peers do not announce (a fleet that is partly AIBrix's own gateway plugin)."""

    @property
    def options(self) -> Options:
        return Options(
            period_s=self.sync_period,
            record_ttl_s=self.record_ttl,
            repair_period_s=self.repair_period,
            announce=self.announce,
        )

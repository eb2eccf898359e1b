"""What every engine kind tells the sidecar. A new kind is one module with these members and a line in ``catalog``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aibrix_operator.runtime.engines.door import EngineDoor


class InvalidArgsError(Exception):
    """The engine must not be started with these flags. Answered with 400."""


class UnverifiableArgsError(Exception):
    """Whether the flags fit cannot be told now. Answered with 500, the caller may try again."""


class StillServingError(Exception):
    """The engine did not finish its requests in time, so it was not put to sleep. Answered with 409."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a command line is made of."""

    python: str
    model: str
    """Path or repository id, as the engine takes it."""
    served_name: str
    host: str
    port: int
    can_sleep: bool
    """Whether to start it able to give its memory back."""
    args: Mapping[str, str]
    """flag → value in order; an empty value is a switch."""


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Names of the request figures on an engine's metrics page, the preferred spelling first."""

    running: Sequence[str]
    waiting: Sequence[str]
    succeeded: Sequence[str]


class EngineKind(Protocol):
    """One engine kind. Stateless."""

    @property
    def metric_names(self) -> MetricNames:
        """Where its request figures stand."""

    @property
    def can_sleep(self) -> bool:
        """Whether ``sleep`` and ``wake`` are known for it."""

    def command(self, launch: Launch) -> list[str]:
        """The command line."""

    def check_args(self, args: Mapping[str, str], visible_gpus: int) -> None:
        """Raise ``InvalidArgsError`` or ``UnverifiableArgsError`` for flags that this Pod cannot run."""

    async def sleep(self, door: EngineDoor, model_name: str, level: int) -> None:
        """Put it to sleep. Raises ``StillServingError``, or ``EngineCallError`` when it did not take the call."""

    async def wake(self, door: EngineDoor) -> None:
        """Wake it. Raises ``EngineCallError``."""


def with_args(command: Sequence[str], args: Mapping[str, str]) -> list[str]:
    """The command line with the claim's flags behind it; an empty value stands for a switch."""
    line = list(command)
    for flag, value in args.items():
        line.append(flag)
        if value:
            line.append(value)
    return line

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


class SleepRefusedError(Exception):
    """The engine is not put to sleep and serves on. Answered with 409."""


class StillServingError(SleepRefusedError):
    """It did not finish its requests in time."""

    def __init__(self, model_name: str) -> None:
        super().__init__(f"model {model_name} is still serving requests, so it is not put to sleep")


@dataclass(slots=True)
class Waking:
    """How far the waking of one engine process has come, kept from one call to the next."""

    has_memory: bool = False
    """Whether its memory was given back to it, or was asked for in a call that may yet be carried out."""


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
        """Put an idle engine to sleep and prove it.

        Raises ``SleepRefusedError`` when it serves on, and ``EngineCallError`` when what it does now is not known.
        """

    async def wake(self, door: EngineDoor, waking: Waking) -> None:
        """Wake it and prove it. Raises ``EngineCallError`` when it is not proved awake; ``waking`` is kept for then."""

    async def is_asleep(self, door: EngineDoor) -> bool | None:
        """The engine's own word; None when it has none or does not answer at once."""


def with_args(command: Sequence[str], args: Mapping[str, str]) -> list[str]:
    """The command line with the claim's flags behind it; an empty value stands for a switch."""
    line = list(command)
    for flag, value in args.items():
        line.append(flag)
        if value:
            line.append(value)
    return line

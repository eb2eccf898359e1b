"""Which operations were carried out already, so that a repeated call does nothing twice.

In memory only: a sidecar that restarts forgets, and its callers' operations are safe to repeat then.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

REMEMBERED = 128


class Action(StrEnum):
    """Operations that carry an id. The values are metric labels."""

    KV_LIMIT = "kv-limit"
    SLEEP = "sleep"
    WAKE = "wake"


class OperationMemory:
    """The last ids of each engine and action. Kept over restarts of the engine, dropped with its record."""

    def __init__(self) -> None:
        self._done: dict[tuple[str, Action], deque[str]] = {}

    def is_done(self, model_name: str, action: Action, operation_id: str) -> bool:
        """Whether this operation was carried out on this engine."""
        return operation_id in self._done.get((model_name, action), ())

    def remember(self, model_name: str, action: Action, operation_id: str) -> None:
        """Note a carried-out operation; the oldest of more than 128 is forgotten."""
        self._done.setdefault((model_name, action), deque(maxlen=REMEMBERED)).append(operation_id)

    def forget(self, model_name: str) -> None:
        """The engine's record is gone: a later engine of the same name starts afresh."""
        for action in Action:
            self._done.pop((model_name, action), None)

"""How a request ended, as Envoy's access log tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Ended:
    """The last entry of a request. Times are seconds since its first byte; None: it never came so far."""

    lease: str
    """Empty: a request that was not admitted (refused, or not asked about)."""
    status: int
    """What the client got; 0: nothing."""
    flags: frozenset[str]
    """Envoy's response flags in their short form: ``DC`` downstream closed, ``UF``, ``UC``, ``UT``, …"""
    duration_s: float
    first_byte_s: float | None = None
    """First byte of the answer's body at Envoy, from the engine."""
    request_bytes: int = 0
    response_bytes: int = 0
    upstream: str = ""
    """``ip:port`` that Envoy dialled."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    """Anthropic's cache creation and read tokens, which its input tokens leave out."""

    def total(self) -> int | None:
        """``total_tokens``, else input + output + cached; None when the engine said nothing."""
        if self.total_tokens is not None:
            return self.total_tokens
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0) + (self.cached_tokens or 0)


@dataclass(frozen=True, slots=True)
class StillRunning:
    """A periodic entry: the request of ``lease`` goes on."""

    lease: str


LogEntry: TypeAlias = Ended | StillRunning

"""The one question that limits are asked, whether they are kept in memory or in Redis."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from aibrix_operator.gateway.verdict import RateLimit
from aibrix_operator.gateway.view import Endpoint


@dataclass(frozen=True, slots=True)
class User:
    """One record of the user store. Limits as they apply: a stored 0 has become its default."""

    name: str
    rpm: int
    tpm: int


@dataclass(frozen=True, slots=True)
class Charge:
    """All that one request has to be admitted for, checked in this order: RPM, TPM, model RPS, in-flight."""

    lease: str
    now_s: float
    user: User | None = None
    tokens: int = 0
    """Reserved of the user's TPM until the request is settled."""
    model: str = ""
    rps: RateLimit | None = None
    inflight: int | None = None
    endpoints: tuple[Endpoint, ...] = ()
    """In the order of preference; the first below ``inflight`` is taken. Empty for a request that is refused anyway,
    of which only the user's RPM is charged."""
    rpm_is_spent: bool = False
    """This request was counted by a charge before; it is neither counted nor refused by the user's RPM again."""


class Limit(StrEnum):
    """Which limit said no."""

    RPM = "rpm"
    TPM = "tpm"
    MODEL_RPS = "model-rps"
    INFLIGHT = "inflight"
    STORE = "store"
    """Redis is away, and the policy for that is ``closed``."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Admitted: ``endpoint`` is the one whose slot was taken (None when there was none to take)."""

    charge: Charge
    endpoint: Endpoint | None
    rpm: int | None = None
    """The user's requests in this minute, this one included."""
    tpm: int | None = None
    """The user's tokens in this minute, reserves included."""
    holds_slot: bool = False
    """It counts against ``inflight`` until released."""


@dataclass(frozen=True, slots=True)
class Denied:
    """Refused; what earlier limits had charged has been given back, the user's RPM excepted."""

    limit: Limit
    retry_after_s: int | None = None


Admission: TypeAlias = Granted | Denied


class Limiter(Protocol):
    """Keeps the counts."""

    def admit(self, charge: Charge) -> Admission | Awaitable[Admission]:
        """Check and reserve, all or nothing. Answers at once when counts are in memory."""

    def renew(self, granted: Granted, now_s: float) -> None:
        """The request still runs: its slot lives for another lease."""

    def settle(self, granted: Granted, tokens: int | None, now_s: float) -> None:
        """It is over: release the slot, put ``tokens`` (None: nothing is charged) in the place of the reserve. Once."""

    def refund(self, granted: Granted, now_s: float) -> None:
        """It was never forwarded: give back slot, reserve and the model's RPS, in the window that was charged."""

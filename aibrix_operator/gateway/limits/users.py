"""Who a request's ``user`` is, and what they may use.

A store answers with a record; :class:`Users` says what an unknown name and a store that is away come to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from aibrix_operator.gateway import refusals
from aibrix_operator.gateway.limits.limiter import User
from aibrix_operator.gateway.verdict import Refuse

DEFAULT_RPM: Final = 100
TOKENS_A_REQUEST: Final = 1000
"""A TPM of 0 is so many times the RPM."""
NAME_LIMIT_BYTES: Final = 256
"""A longer name is nobody's: no store is asked for it."""
AWAY_RETRY_S: Final = 1


class Mode(StrEnum):
    """What becomes of a request whose user is not known."""

    OPTIONAL = "optional"
    """It is served without a user's limits."""
    REQUIRE = "require"
    """It is refused."""


class Policy(StrEnum):
    """What becomes of limits while Redis, which holds them, is away."""

    OPEN = "open"
    """Rates are not limited. Slots are counted, each gateway its own."""
    LOCAL = "local"
    """Every gateway limits by its own counts."""
    CLOSED = "closed"
    """What has a limit is refused until Redis is back."""


class StoreAwayError(Exception):
    """The store can't say who somebody is."""


class UserStore(Protocol):
    """Records of users by name."""

    def get(self, name: str) -> User | Awaitable[User | None] | None:
        """None: nobody of that name. Raises ``StoreAwayError``, at once or when awaited."""


@dataclass(frozen=True, slots=True)
class BadRecordError(Exception):
    """A record that is no user. ``detail`` says which and why."""

    detail: str

    def __str__(self) -> str:
        return self.detail


def user_of(record: object, name: str | None = None) -> User:
    """A stored record ``{"name", "rpm", "tpm"}``, defaults filled in. ``name``: the one it is stored under, if any."""
    if not isinstance(record, Mapping):
        raise BadRecordError(f"a user is a mapping with name, rpm and tpm, found {type(record).__name__}")
    found = record.get("name", name)
    if not isinstance(found, str) or not found:
        raise BadRecordError(f"a user's name is a string that is not empty, found {found!r}")
    rpm = _figure(record, "rpm", found) or DEFAULT_RPM
    tpm = _figure(record, "tpm", found) or rpm * TOKENS_A_REQUEST
    return User(name or found, rpm, tpm)


def _figure(record: Mapping[object, object], key: str, name: str) -> int:
    value = record.get(key, 0)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadRecordError(f"user {name!r}: {key} is a whole number of at least 0, found {value!r}")
    return value


Resolved: TypeAlias = User | Refuse | None
"""None: the request has no user's limits."""


class Users:
    """Answers for one request's user name."""

    def __init__(self, store: UserStore | None, mode: Mode, policy: Policy) -> None:
        """``store`` None: nobody is known, and only ``Mode.OPTIONAL`` makes sense."""
        self._store = store
        self._mode = mode
        self._policy = policy

    def resolve(self, name: str | None) -> Resolved | Awaitable[Resolved]:
        """The user, or what a request of an unknown one is answered. Waits where the store has to be asked."""
        if not name or len(name.encode("utf-8", "surrogatepass")) > NAME_LIMIT_BYTES or self._store is None:
            return self._of(name, None)
        try:
            found = self._store.get(name)
        except StoreAwayError:
            return self._away()
        if isinstance(found, Awaitable):
            return self._waited(name, found)
        return self._of(name, found)

    async def _waited(self, name: str, asked: Awaitable[User | None]) -> Resolved:
        try:
            return self._of(name, await asked)
        except StoreAwayError:
            return self._away()

    def _of(self, name: str | None, found: User | None) -> Resolved:
        if found is not None or self._mode is Mode.OPTIONAL:
            return found
        return refusals.unknown_user(name) if name else refusals.no_user()

    def _away(self) -> Resolved:
        # Awake models are served while Redis is dead, also in mode `require`: there the policy decides, not the mode.
        return refusals.counts_away(AWAY_RETRY_S) if self._policy is Policy.CLOSED else None

"""Users from Redis, upstream's records: ``aibrix-users/<name>`` holds ``{"name", "rpm", "tpm"}``."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import orjson

from aibrix_operator.gateway.limits import keys
from aibrix_operator.gateway.limits.limiter import User
from aibrix_operator.gateway.limits.store import AwayError, Store
from aibrix_operator.gateway.limits.users import BadRecordError, StoreAwayError, user_of

LOG = logging.getLogger(__name__)
FRESH_S: Final = 10.0
"""How long a changed record may go unseen."""
KEPT: Final = 10_000
"""Names remembered, unknown ones too; the longest unused goes first."""


@dataclass(frozen=True, slots=True)
class _Known:
    user: User | None
    read_s: float


class RedisUsers:
    """A UserStore. While Redis is away, what it last said of a name holds."""

    def __init__(
        self, store: Store, *, fresh_s: float = FRESH_S, kept: int = KEPT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._fresh_s = fresh_s
        self._kept = kept
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def get(self, name: str) -> User | Awaitable[User | None] | None:
        """At once for a name that was read lately, or while Redis is away."""
        known = self._known.get(name)
        if known is not None:
            self._known.move_to_end(name)
            if self._clock() - known.read_s < self._fresh_s or not self._store.is_up:
                return known.user
        elif not self._store.is_up:
            raise StoreAwayError(name)
        return self._read(name)

    async def _read(self, name: str) -> User | None:
        try:
            record = await self._store.read(keys.user_record(name))
        except AwayError as error:
            known = self._known.get(name)
            if known is None:
                raise StoreAwayError(name) from error
            return known.user
        user = self._parse(name, record)
        self._known[name] = _Known(user, self._clock())
        self._known.move_to_end(name)
        if len(self._known) > self._kept:
            self._known.popitem(last=False)
        return user

    def _parse(self, name: str, record: bytes | None) -> User | None:
        if record is None:
            return None
        try:
            return user_of(orjson.loads(record), name)
        except (orjson.JSONDecodeError, BadRecordError) as error:
            # Known, if badly: without limits, as an unknown user may be, they are not served.
            LOG.warning("%s has a record that can't be used, and gets the default limits: %s", name, error)
            return user_of({}, name)

"""Users from Redis, upstream's records: ``aibrix-users/<name>`` holds ``{"name", "rpm", "tpm"}``."""

from __future__ import annotations

import asyncio
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
MOST_A_CALL: Final = 200
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
        self._asked: dict[str, asyncio.Future[_Known | None]] = {}
        """Names that are being read, or will be next."""
        self._call: asyncio.Task[None] | None = None

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
        answer = self._asked.get(name)
        if answer is None:
            answer = self._asked[name] = asyncio.get_running_loop().create_future()
            if self._call is None:
                self._call = asyncio.create_task(self._run(), name="user records")
        # Others may wait for the same name: who stops waiting must not end it for them.
        known = await asyncio.shield(answer) or self._known.get(name)
        if known is None:
            raise StoreAwayError(name)
        return known.user

    async def _run(self) -> None:
        """One call at a time, for all names that came up during the last: a burst must not look like a slow Redis."""
        try:
            while self._asked:
                names = list(self._asked)[:MOST_A_CALL]
                found = await self._read_all(names)
                for name in names:
                    self._answer(name, found.get(name))
        finally:
            self._call = None
            for name in list(self._asked):
                self._answer(name, None)

    async def _read_all(self, names: list[str]) -> dict[str, _Known]:
        """Empty when Redis is away."""
        try:
            records = await self._store.read([keys.user_record(name) for name in names])
        except AwayError:
            return {}
        read_s = self._clock()
        return {name: self._remember(name, record, read_s) for name, record in zip(names, records, strict=True)}

    def _answer(self, name: str, known: _Known | None) -> None:
        answer = self._asked.pop(name)
        if not answer.done():
            answer.set_result(known)

    def _remember(self, name: str, record: bytes | None, read_s: float) -> _Known:
        known = self._known[name] = _Known(self._parse(name, record), read_s)
        self._known.move_to_end(name)
        if len(self._known) > self._kept:
            self._known.popitem(last=False)
        return known

    def _parse(self, name: str, record: bytes | None) -> User | None:
        if record is None:
            return None
        try:
            return user_of(orjson.loads(record), name)
        except (orjson.JSONDecodeError, BadRecordError) as error:
            # Known, if badly: without limits, as an unknown user may be, they are not served.
            LOG.warning("%s has a record that can't be used, and gets the default limits: %s", name, error)
            return user_of({}, name)

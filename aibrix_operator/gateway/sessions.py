"""Which engine a caller's session is pinned to: in memory, and in Redis for all gateways.

A pin is first claimed, then refreshed, and moved when its Pod is gone; all three are one script, which leaves what
another gateway has pinned meanwhile and says it. Deciding never waits for that: writes run in the background, and the
next request uses the winner. Session keys are the callers' secrets: nothing here logs one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from redis.asyncio import Redis
from redis.exceptions import RedisError

LOG = logging.getLogger(__name__)

LIFE_S: Final = 3600
"""Since the last use, here and in Redis."""
MOST_KEYS: Final = 100_000
READ_S: Final = 0.1
WRITE_S: Final = 2.0
SWEEP_S: Final = 60.0
_REFRESHED_EACH_S: Final = 60.0
"""A busy session's pin is not written with each request; it may leave Redis that much earlier."""
_MOST_WRITES: Final = 1000
"""Under way at once. What is left out stays unconfirmed, and the sweep claims it."""
_AWAY_S: Final = 1.0
"""After a failed read new sessions do not wait for Redis."""
_BATCH: Final = 200

_AWAY: Final = (OSError, RedisError, TimeoutError)

Session: TypeAlias = tuple[str, str]
"""(model, session key)"""


class PinStore(Protocol):
    """Pins that gateways share. Its errors are OSError, RedisError and TimeoutError."""

    async def read(self, sessions: Sequence[Session]) -> Sequence[str | None]:
        """Their addresses, in order."""

    async def pin(self, session: Session, address: str, old: str) -> str:
        """Pin it to ``address`` if it is not pinned, or to ``address`` or ``old``; says what it is pinned to now."""


class RedisPins:
    """``aibrix:gateway:session_affinity:<model>\\0<key>`` → address."""

    _SCRIPT: Final = """
local now = redis.call('GET', KEYS[1])
if now and now ~= ARGV[1] and now ~= ARGV[2] then return now end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return ARGV[1]
"""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._script = redis.register_script(self._SCRIPT)

    async def read(self, sessions: Sequence[Session]) -> Sequence[str | None]:
        """See ``PinStore``."""
        if len(sessions) == 1:
            return [_address(await self._redis.get(_key(sessions[0])))]
        return [_address(value) for value in await self._redis.mget([_key(session) for session in sessions])]

    async def pin(self, session: Session, address: str, old: str) -> str:
        """See ``PinStore``."""
        return _address(await self._script(keys=[_key(session)], args=[address, old, LIFE_S * 1000])) or address


@dataclass(slots=True)
class _Pin:
    address: str
    used_s: float
    written_s: float
    is_confirmed: bool = False


class Sessions:
    """Used from one event loop; without a store also without one."""

    def __init__(
        self, store: PinStore | None = None, *, clock: Callable[[], float] = time.monotonic, most: int = MOST_KEYS
    ) -> None:
        """``store``: None, pins are this gateway's alone. ``clock`` counts seconds."""
        self._store = store
        self._clock = clock
        self._most = most
        self._pins: OrderedDict[Session, _Pin] = OrderedDict()
        self._writes: set[asyncio.Task[None]] = set()
        self._away_until_s = float("-inf")
        self._is_away_told = False

    def __len__(self) -> int:
        return len(self._pins)

    def address(self, model: str, key: str) -> str | None:
        """What is known here; None: nothing."""
        pin = self._pins.get((model, key))
        if pin is None or self._clock() - pin.used_s >= LIFE_S:
            return None
        return pin.address

    def is_worth_a_look(self, model: str, key: str) -> bool:
        """The session is not known here, and Redis may know it."""
        return self._store is not None and self.address(model, key) is None and self._clock() >= self._away_until_s

    async def look(self, model: str, key: str) -> None:
        """Read Redis, at most 100 ms long; ``address`` then knows what it said. Never raises."""
        if self._store is None:
            return
        session = (model, key)
        try:
            async with asyncio.timeout(READ_S):
                (address,) = await self._store.read([session])
        except _AWAY as error:
            self._away_until_s = self._clock() + _AWAY_S
            self._tell_away(error)
            return
        self._is_away_told = False
        if address is not None and self.address(model, key) is None:
            self._pins[session] = _Pin(address, self._clock(), -_REFRESHED_EACH_S, is_confirmed=True)
            self._pins.move_to_end(session)
            if len(self._pins) > self._most:
                self._pins.popitem(last=False)

    def pin(self, model: str, key: str, address: str) -> None:
        """A request of the session went to ``address``: keep it there, also where it was elsewhere before."""
        now_s = self._clock()
        session = (model, key)
        pin = self._pins.get(session)
        old = ""
        if pin is None:
            pin = self._pins[session] = _Pin(address, now_s, -_REFRESHED_EACH_S)
            if len(self._pins) > self._most:
                self._pins.popitem(last=False)
        elif pin.address != address:
            old = pin.address
            pin.address, pin.is_confirmed, pin.written_s = address, False, -_REFRESHED_EACH_S
        pin.used_s = now_s
        self._pins.move_to_end(session)
        if now_s - pin.written_s >= _REFRESHED_EACH_S:
            self._write(session, pin, old)

    async def sweep(self) -> None:
        """Forget what is idle, and what Redis has lost; claim again what it does not have yet."""
        now_s = self._clock()
        while self._pins and now_s - next(iter(self._pins.values())).used_s >= LIFE_S:
            self._pins.popitem(last=False)
        if self._store is None:
            return
        sessions = list(self._pins)
        for start in range(0, len(sessions), _BATCH):
            batch = sessions[start : start + _BATCH]
            try:
                async with asyncio.timeout(WRITE_S):
                    addresses = await self._store.read(batch)
            except _AWAY as error:
                self._tell_away(error)
                return
            self._is_away_told = False
            for session, address in zip(batch, addresses, strict=True):
                self._compare(session, address)

    async def run(self) -> None:
        """Sweep once a minute, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.sweep()

    async def settled(self) -> None:
        """All writes that are under way have ended."""
        while self._writes:
            await asyncio.gather(*self._writes)

    def _compare(self, session: Session, address: str | None) -> None:
        pin = self._pins.get(session)
        if pin is None:
            return
        if not pin.is_confirmed:
            self._write(session, pin, "")
        elif address is not None:
            pin.address = address
        else:
            del self._pins[session]

    def _write(self, session: Session, pin: _Pin, old: str) -> None:
        if self._store is None or len(self._writes) >= _MOST_WRITES:
            return
        pin.written_s = self._clock()
        task = asyncio.get_running_loop().create_task(self._written(self._store, session, pin.address, old))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _written(self, store: PinStore, session: Session, address: str, old: str) -> None:
        try:
            async with asyncio.timeout(WRITE_S):
                winner = await store.pin(session, address, old)
        except _AWAY as error:
            self._tell_away(error)
            return
        self._is_away_told = False
        pin = self._pins.get(session)
        if pin is not None and pin.address == address:
            pin.address, pin.is_confirmed = winner, True

    def _tell_away(self, error: BaseException) -> None:
        """Once until Redis answers again. The error's text is left out: it may quote a key."""
        if not self._is_away_told:
            self._is_away_told = True
            LOG.warning("session pins are not shared: Redis did not answer (%s)", type(error).__name__)


def _key(session: Session) -> bytes:
    model, key = session
    name = f"aibrix:gateway:session_affinity:{model}\0{key}"
    return name.encode("utf-8", "surrogatepass")


def _address(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("ascii", "replace")
    return value if isinstance(value, str) else None

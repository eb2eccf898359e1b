"""Limits that all gateways share, counted in Redis by one script.

One call is under way at a time and carries all that came up since the last: a busy gateway's requests share calls, and
what a call says of this gateway's own slots is never older than the call before. While Redis is away, ``Policy`` says
what becomes of requests, and none of them waits.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Final, TypeAlias

from aibrix_operator.gateway.limits import keys, scripts
from aibrix_operator.gateway.limits.batch import Asked, Batch, again, asked
from aibrix_operator.gateway.limits.limiter import Admission, Charge, Denied, Granted, Limit
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.limits.slots import Slots
from aibrix_operator.gateway.limits.store import AwayError, Standing, Store
from aibrix_operator.gateway.limits.users import AWAY_RETRY_S, Policy
from aibrix_operator.gateway.limits.windows import USER_WINDOW_S, index_of, left_s

LOG = logging.getLogger(__name__)
MOST_A_CALL: Final = 128
"""Charges that one script takes: Redis does nothing else meanwhile."""
REFRESH_S: Final = 60.0
"""A slot that is held for longer is told again, long before Redis would forget it."""

_Waiting: TypeAlias = tuple[Asked, asyncio.Future[Admission]]
_LIMITS: Final = {scripts.OVER_RPM: Limit.RPM, scripts.OVER_TPM: Limit.TPM, scripts.OVER_RPS: Limit.MODEL_RPS}


class RedisLimiter:
    """A Limiter for many gateways. ``gateway``: this one's field in Redis, ``<name>:<start ns>``, never used again."""

    def __init__(self, store: Store, policy: Policy, gateway: str) -> None:
        self.slots = Slots()
        self.clock_ahead_s = 0.0
        """How far Redis' clock is ahead of ours; windows are cut by Redis', so that all gateways cut them alike."""
        self._store = store
        self._policy = policy
        self._gateway = gateway
        self._local = MemoryLimiter(self.slots)
        self._shared: dict[str, Asked] = {}
        self._waiting: deque[_Waiting] = deque()
        self._untold: set[str] = set()
        self._told_s: dict[str, float] = {}
        """Slots held for long: ``Endpoint.key`` → when Redis was last told for that reason."""
        self._tokens: list[tuple[str, int]] = []
        self._back: list[str] = []
        self._is_kicked = False
        self._call: asyncio.Task[None] | None = None
        self._taken: list[_Waiting] = []
        """Those of the call that is under way."""
        store.when_back(self.tell_all)

    def admit(self, charge: Charge) -> Admission | Awaitable[Admission]:
        """Answers at once what has no limit, and everything while Redis is away. Else with a future: who stops waiting
        for it cancels it, or refunds what it has been granted already."""
        if charge.user is None and charge.rps is None and charge.inflight is None:
            return Granted(charge, None)
        if not self._store.is_up:
            return self._without_redis(charge)
        answer: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked(charge, charge.now_s + self.clock_ahead_s, self.slots.count), answer))
        self._kick()
        return answer

    def renew(self, granted: Granted, now_s: float) -> None:
        """Tell Redis of the slot again, each minute."""
        if granted.holds_slot and granted.endpoint is not None:
            key = granted.endpoint.key
            if now_s - self._told_s.setdefault(key, now_s) >= REFRESH_S:
                self._told_s[key] = now_s
                self._tell(key)

    def settle(self, granted: Granted, tokens: int | None, now_s: float) -> None:
        """Once a lease. Tokens over the reserve are charged in the minute of ``now_s`` when the minute has turned."""
        one = self._close(granted)
        if one is None:
            self._local.settle(granted, tokens, now_s)
            self._tell_end(granted)
            return
        charge = one.charge
        if charge.user is None or not charge.endpoints:
            return
        used, name = tokens or 0, charge.user.name
        minute = index_of(now_s + self.clock_ahead_s, USER_WINDOW_S)
        if used > charge.tokens:
            self._tokens.append((keys.user_tpm(name, minute), used - charge.tokens))
        elif used < charge.tokens and minute - one.minute <= 1:
            self._tokens.append((keys.user_tpm(name, one.minute), used - charge.tokens))
        self._kick()

    def refund(self, granted: Granted, now_s: float) -> None:
        """Once a lease, as ``settle``; the user's RPM stays spent."""
        one = self._close(granted)
        if one is None:
            self._local.refund(granted, now_s)
            self._tell_end(granted)
            return
        charge, now_s = one.charge, now_s + self.clock_ahead_s
        # A later window may have taken over the bin: what is older than the counter's lifetime is left to that.
        if charge.user is not None and charge.tokens and index_of(now_s, USER_WINDOW_S) - one.minute <= 1:
            self._tokens.append((keys.user_tpm(charge.user.name, one.minute), -charge.tokens))
        if charge.rps is not None:
            window_s = charge.rps.window_s
            if index_of(now_s, window_s) - one.window <= 1:
                self._back.append(keys.model_rps(charge.model, window_s, one.window))
        self._kick()

    def status(self) -> Standing:
        """Whether limits are shared now."""
        return self._store.standing()

    def tell_all(self) -> None:
        """Redis was away or has forgotten this gateway: it is told of every slot that is held."""
        self._untold.update(self.slots.held())
        self._kick()

    async def leave(self) -> None:
        """This gateway ends: its slots are free at once."""
        if self._call is not None:
            await asyncio.gather(self._call, return_exceptions=True)
        if self._store.is_up:
            held = [keys.slots(key) for key in self.slots.held()]
            try:
                await self._store.ask(scripts.LEAVE, [keys.GATEWAYS, keys.RUNNING, *held], self._gateway)
            except AwayError as error:
                LOG.info("slots are free in %s s, Redis could not be told: %s", scripts.LIVE_S, error)

    def _without_redis(self, charge: Charge) -> Admission:
        if self._policy is Policy.CLOSED:
            return Denied(Limit.STORE, AWAY_RETRY_S)
        if self._policy is Policy.LOCAL:
            return self._local.admit(charge)
        unlimited = self._local.admit(dataclasses.replace(charge, user=None, rps=None))
        return dataclasses.replace(unlimited, charge=charge) if isinstance(unlimited, Granted) else unlimited

    def _close(self, granted: Granted) -> Asked | None:
        one = self._shared.pop(granted.charge.lease, None)
        if one is not None and granted.holds_slot and granted.endpoint is not None:
            self.slots.give_back(granted.endpoint.key)
            self._tell_end(granted)
        return one

    def _tell_end(self, granted: Granted) -> None:
        if granted.holds_slot and granted.endpoint is not None:
            key = granted.endpoint.key
            if not self.slots.count(key):
                self._told_s.pop(key, None)
            self._tell(key)

    def _tell(self, endpoint_key: str) -> None:
        self._untold.add(endpoint_key)
        self._kick()

    def _kick(self) -> None:
        """One call after all that this turn of the loop brings; when one is under way, its end starts the next."""
        if not self._is_kicked and self._call is None and self._store.is_up:
            self._is_kicked = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._is_kicked = False
        if self._has_work():
            self._call = asyncio.create_task(self._run(), name="limits-redis")

    def _has_work(self) -> bool:
        return bool(self._waiting or self._untold or self._tokens or self._back)

    async def _run(self) -> None:
        try:
            while self._has_work() and self._store.is_up:
                await self._one_call()
        except AwayError:
            pass  # The store has told of it, and what waits is decided below.
        except Exception:  # A fault of ours, whose details no request waits for.
            LOG.exception("limits could not be asked for in Redis")
        finally:
            self._call = None
            self._decide_without_redis()

    async def _one_call(self) -> None:
        batch = Batch(self.slots.count)
        self._taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_A_CALL))]
        self._fill(batch, [one for one, _ in self._taken])
        try:
            told = await self._store.ask(
                *(scripts.ADMIT, batch.keys, self._gateway, scripts.LIVE_S, scripts.KEEP_S, batch.document())
            )
        except AwayError:
            # Some of it may have happened all the same: slots are told again. Tokens are not, they might count twice.
            self._untold |= batch.slots
            raise
        if told[0]:
            self.tell_all()
        for index, ((one, answer), found) in enumerate(zip(self._taken, told[1:], strict=True)):
            self._take_answer(batch, index, one, answer, found)
        self._taken = []

    def _fill(self, batch: Batch, charges: Sequence[Asked]) -> None:
        for key in self._untold:
            batch.write(key)
        for key, amount in self._tokens:
            batch.tokens(key, amount)
        for key in self._back:
            batch.take_back(key)
        self._untold, self._tokens, self._back = set(), [], []
        for one in charges:
            batch.ask(one)

    def _take_answer(
        self, batch: Batch, index: int, one: Asked, answer: asyncio.Future[Admission], found: Sequence[int]
    ) -> None:
        verdict, rpm, tpm, place = found
        if verdict == scripts.NO_SLOT and one.rest:
            self._waiting.append((again(one), answer))
            return
        if verdict != scripts.GRANTED:
            if not answer.cancelled():
                answer.set_result(self._denied(one.charge, verdict))
            return
        charge, endpoint = one.charge, batch.endpoint(index, place)
        if endpoint is not None:
            self.slots.take(endpoint.key)
        if charge.endpoints:
            self._shared[charge.lease] = one
        known = charge.user is not None
        granted = Granted(
            charge, endpoint, rpm if known else None, tpm if known else None, holds_slot=endpoint is not None
        )
        if answer.cancelled():
            self.refund(granted, charge.now_s)
        else:
            answer.set_result(granted)

    def _denied(self, charge: Charge, verdict: int) -> Denied:
        limit = _LIMITS.get(verdict)
        if limit is None:
            return Denied(Limit.INFLIGHT)
        window_s = charge.rps.window_s if limit is Limit.MODEL_RPS and charge.rps is not None else USER_WINDOW_S
        return Denied(limit, left_s(charge.now_s + self.clock_ahead_s, window_s))

    def _decide_without_redis(self) -> None:
        for one, answer in (*self._taken, *self._waiting):
            if not answer.done():
                answer.set_result(self._without_redis(one.charge))
        self._taken = []
        self._waiting.clear()

"""The exchange that decides: key, user, body, decision, limits, lease, in this order.

What needs no waiting is answered within the call: an awake model with limits in memory never touches asyncio.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from aibrix_operator.gateway import answers, refusals, stepping
from aibrix_operator.gateway.decide import Settings, StrategyBook, decide
from aibrix_operator.gateway.exchange import Answer, Question
from aibrix_operator.gateway.headers import TRACEPARENT, USER
from aibrix_operator.gateway.keys import Keys
from aibrix_operator.gateway.leases import Lease, Leases
from aibrix_operator.gateway.limits.limiter import Admission, Charge, Denied, Granted, Limit, Limiter, User
from aibrix_operator.gateway.limits.users import Users
from aibrix_operator.gateway.parsing import entry, identity
from aibrix_operator.gateway.request import Api, Request
from aibrix_operator.gateway.stepping import Steps
from aibrix_operator.gateway.strategies.base import BEFORE
from aibrix_operator.gateway.verdict import Forward, Refuse, Verdict, Wait
from aibrix_operator.gateway.view import View, WakeTarget
from aibrix_operator.gateway.waiting_room import WaitingRoom

LOG = logging.getLogger(__name__)

_ANSWERS_AT_LENGTH: Final = frozenset({Api.CHAT, Api.MESSAGES, Api.COMPLETIONS, Api.RESPONSES})
"""APIs whose answer takes tokens beside the prompt's."""
MOST_RESERVED_TOKENS: Final = 2**31
"""A client may ask for an answer of any length; counts are summed in 53 bits."""


class Waker(Protocol):
    """Asks for sleeping engines."""

    def wake(self, target: WakeTarget) -> None:
        """Returns at once. One request for a burst of calls."""


class Observer(Protocol):
    """Counts decisions; the gateway's metrics. ``decision_s`` leaves out what a request was held for."""

    def admitted(self, lease: Lease, decision_s: float) -> None:
        """A request was forwarded."""

    def refused(self, model: str, status_code: int, decision_s: float, limit: Limit | None = None) -> None:
        """A request was answered by us. ``model`` is empty where the body was not read."""


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """What is the same for all requests."""

    decision: Settings = field(default_factory=Settings)
    default_output_tokens: int = 512
    """Reserved for an answer whose length the request does not limit."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Whom the exchange asks."""

    view: View
    book: StrategyBook
    users: Users
    limiter: Limiter
    leases: Leases
    waker: Waker
    room: WaitingRoom
    observer: Observer
    keys: Keys | None = None
    """None: everybody may ask."""


class _Asked:
    """What is known of one question while it is answered."""

    __slots__ = ("began_s", "has_paid", "held_s", "id", "limit", "model", "user")

    def __init__(self, request_id: str, began_s: float) -> None:
        self.id = request_id
        self.began_s = began_s
        self.has_paid = False
        """It is one of its user's requests of this minute; it is not to be counted twice."""
        self.held_s = 0.0
        self.model = ""
        self.user: User | None = None
        self.limit: Limit | None = None


class DecidingExchange:
    """Answers Envoy's questions from the view, within one event loop."""

    def __init__(
        self,
        parts: Parts,
        settings: ExchangeSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        """``clock`` counts seconds and is never turned back, as leases want it; ``wall`` is Unix time."""
        self._parts = parts
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._random = Random() if random is None else random

    def answer(self, question: Question) -> Answer | Awaitable[Answer]:
        """See ``Exchange``."""
        asked = _Asked(identity.request_id(question.headers.get(TRACEPARENT)), self._clock())
        return stepping.run(self._steps(question, asked), lambda error: self._fault(asked, error))

    def _steps(self, question: Question, asked: _Asked) -> Steps[Answer]:
        keys = self._parts.keys
        holder = keys.holder(question.headers) if keys is not None else None
        if keys is not None and holder is None:
            return self._refused(refusals.wrong_key(), asked)
        name = holder.user if holder is not None else None
        if name is None:
            name = identity.text(question.headers.get(USER)) or None
        user = self._parts.users.resolve(name)
        if isinstance(user, Awaitable):
            user = yield user
        if isinstance(user, Refuse):
            return self._refused(user, asked)
        asked.user = user
        request = entry.parse(question, asked.id, name)
        question.let_go()
        # What waits holds its prompt, and need not hold its body too.
        del question
        if isinstance(request, Refuse):
            return (yield from self._refused_and_charged(request, asked))
        asked.model = request.model
        if user is not None and request.stream and request.api is Api.CHAT and not request.include_usage:
            return (yield from self._refused_and_charged(refusals.no_stream_usage(), asked))
        return (yield from self._admitted(request, asked))

    # --- a request that can be decided

    def _admitted(self, request: Request, asked: _Asked) -> Steps[Answer]:
        """Decide and charge, once more if the engine was gone when the charge had been waited for."""
        while True:
            verdict = yield from self._verdict(request, asked)
            if isinstance(verdict, Refuse):
                return (yield from self._refused_and_charged(verdict, asked))
            admission = self._parts.limiter.admit(self._charge(verdict, request, asked))
            waited = isinstance(admission, Awaitable)
            if isinstance(admission, Awaitable):
                admission = yield from self._waited_for(admission)
            if isinstance(admission, Denied):
                return self._refused(self._denied(admission, verdict, asked), asked)
            asked.has_paid = True
            if waited and not self._is_still_there(verdict, admission):
                self._parts.limiter.refund(admission, self._wall())
                continue
            return self._forwarded(request, verdict, admission, asked)

    def _verdict(self, request: Request, asked: _Asked) -> Steps[Forward | Refuse]:
        """The decision, after as much waiting for the model as its profile grants."""
        verdict = yield from self._decide(request)
        if not isinstance(verdict, Wait):
            return verdict
        if asked.user is not None and not asked.has_paid:
            denied = yield from self._paid(asked)
            if denied is not None:
                return denied
            # What had to be waited for may have taken long.
            verdict = yield from self._decide(request)
            if not isinstance(verdict, Wait):
                return verdict
        seat = self._parts.room.enter(request.model)
        if seat is None:
            return verdict.refuse
        entered_s = self._clock()
        try:
            while isinstance(verdict, Wait):
                self._wake(verdict.refuse)
                within_s = min(verdict.wait_s, self._parts.room.longest_s) - (self._clock() - entered_s)
                if within_s <= 0 or not (yield seat.change(within_s)):
                    return verdict.refuse
                verdict = yield from self._decide(request)
            return verdict
        finally:
            seat.leave()
            asked.held_s += self._clock() - entered_s

    def _decide(self, request: Request) -> Steps[Verdict]:
        """The decision, made again where a strategy first had something to read."""
        parts = self._parts
        verdict = decide(request, parts.view, parts.book, self._settings.decision, self._wall(), self._random)
        before = request.memo.pop(BEFORE, None)
        if before is not None:
            yield before()
            verdict = decide(request, parts.view, parts.book, self._settings.decision, self._wall(), self._random)
        return verdict

    def _charge(self, verdict: Forward, request: Request, asked: _Asked) -> Charge:
        return Charge(
            lease=self._parts.leases.new_id(),
            now_s=self._wall(),
            user=asked.user,
            tokens=0 if asked.user is None else self._reserve(request),
            model=verdict.model.name,
            rps=verdict.rps,
            inflight=verdict.inflight,
            endpoints=(verdict.endpoint, *verdict.others),
            rpm_is_spent=asked.has_paid,
        )

    def _reserve(self, request: Request) -> int:
        """What it may come to: its prompt, and the answer that it asks for."""
        tokens = self._parts.view.token_sizes.tokens(request.model, request.prompt_bytes)
        if request.api in _ANSWERS_AT_LENGTH:
            limit = request.max_tokens
            tokens += self._settings.default_output_tokens if limit is None else limit
        return min(tokens, MOST_RESERVED_TOKENS)

    def _waited_for(self, admission: Awaitable[Admission]) -> Steps[Admission]:
        """Its result. Who stops waiting gives back what was granted meanwhile: nobody else knows of it."""
        admitting = asyncio.ensure_future(admission)
        try:
            yield admitting
        except GeneratorExit:
            if not admitting.cancel() and isinstance(granted := admitting.result(), Granted):
                self._parts.limiter.refund(granted, self._wall())
            raise
        return admitting.result()

    def _is_still_there(self, verdict: Forward, granted: Granted) -> bool:
        model = self._parts.view.models.get(verdict.model.name)
        if model is verdict.model:
            return True
        return model is not None and (granted.endpoint or verdict.endpoint) in model.endpoints

    def _forwarded(self, request: Request, verdict: Forward, granted: Granted, asked: _Asked) -> Answer:
        endpoint = granted.endpoint or verdict.endpoint
        try:
            verdict.routing.admitted(verdict.ask, endpoint)
            request.forget_text()
            lease = self._parts.leases.open(verdict, granted, request, self._clock())
        except Exception:
            self._parts.limiter.refund(granted, self._wall())
            raise
        self._parts.observer.admitted(lease, self._took_s(asked))
        return answers.forwarded(lease)

    # --- a request that ends here

    def _refused_and_charged(self, refuse: Refuse, asked: _Asked) -> Steps[Answer]:
        """A known user pays for a refusal with a request, and is told first of what else is used up."""
        if asked.user is not None and not asked.has_paid:
            denied = yield from self._paid(asked)
            refuse = denied or refuse
        self._wake(refuse)
        return self._refused(refuse, asked)

    def _paid(self, asked: _Asked) -> Steps[Refuse | None]:
        """Take one request off what its user has left, before anything is done for it. What is used up, if anything."""
        asked.has_paid = True
        admission = self._parts.limiter.admit(Charge(self._parts.leases.new_id(), self._wall(), asked.user))
        if isinstance(admission, Awaitable):
            admission = yield admission
        return self._denied(admission, None, asked) if isinstance(admission, Denied) else None

    def _denied(self, denied: Denied, verdict: Forward | None, asked: _Asked) -> Refuse:
        asked.limit = denied.limit
        return answers.denied(denied, verdict, asked.user)

    def _wake(self, refuse: Refuse) -> None:
        if refuse.wake is not None:
            self._parts.waker.wake(refuse.wake)

    def _refused(self, refuse: Refuse, asked: _Asked) -> Answer:
        self._parts.observer.refused(asked.model, refuse.status, self._took_s(asked), asked.limit)
        return answers.refused(refuse, asked.id)

    def _fault(self, asked: _Asked, error: Exception) -> Answer:
        """Ours. The log tells where and not what: an error's text may quote a prompt or a key."""
        where = "".join(traceback.format_tb(error.__traceback__))
        LOG.error("request %s ended in %s:\n%s", asked.id, type(error).__name__, where)
        return answers.refused(refusals.fault(), asked.id)

    def _took_s(self, asked: _Asked) -> float:
        return self._clock() - asked.began_s - asked.held_s

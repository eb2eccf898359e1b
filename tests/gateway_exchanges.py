"""A whole exchange over a view, with limits in memory; what is woken and counted is kept for a test to look at."""

import asyncio
from random import Random

import orjson
from gateway_asks import chat, question

from aibrix_operator.gateway.decide import Settings
from aibrix_operator.gateway.deciding_exchange import DecidingExchange, ExchangeSettings, Parts
from aibrix_operator.gateway.exchange import Forwarded, Refused
from aibrix_operator.gateway.leases import Leases
from aibrix_operator.gateway.limits.limiter import Granted, User
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.limits.users import Mode, Policy, Users
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.waiting_room import WaitingRoom

START_S = 1_000_020.0
"""Unix seconds at the begin of a minute."""


class Store:
    """Users by name."""

    def __init__(self, *users):
        self.users = {user.name: user for user in users}

    def get(self, name):
        return self.users.get(name)


class SlowStore(Store):
    """Has to be waited for."""

    async def get(self, name):
        await asyncio.sleep(0)
        return self.users.get(name)


class SlowLimiter:
    """Counts in memory, and takes its time; ``gate`` holds what comes."""

    def __init__(self):
        self.memory = MemoryLimiter()
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()
        self.refunds = 0

    async def admit(self, charge):
        self.asked.set()
        await self.gate.wait()
        return self.memory.admit(charge)

    def refund(self, granted, now_s):
        self.refunds += 1
        self.memory.refund(granted, now_s)


class DeferredLimiter(MemoryLimiter):
    """Counts in memory, and answers when told to: its answers are futures, as those of shared limits are."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def admit(self, charge):
        answer = asyncio.get_running_loop().create_future()
        self.asked.append((charge, answer))
        return answer

    def answer(self):
        """All that was asked; what is granted to nobody is taken back."""
        for charge, answer in self.asked:
            admission = super().admit(charge)
            if not answer.cancelled():
                answer.set_result(admission)
            elif isinstance(admission, Granted):
                self.refund(admission, charge.now_s)
        self.asked.clear()


class Watching:
    """Counts as the gateway's metrics do, and keeps wakes."""

    def __init__(self):
        self.woken, self.refusals, self.leases, self.times = [], [], [], []

    def wake(self, target):
        self.woken.append(target)

    def admitted(self, lease, decision_s):
        self.leases.append(lease)
        self.times.append(decision_s)

    def refused(self, model, status_code, decision_s, limit=None):
        self.refusals.append((model, status_code, limit))
        self.times.append(decision_s)


class Gateway:
    """One gateway process without its sockets."""

    def __init__(self, seen, *, users=(), mode=Mode.OPTIONAL, keys=None, limiter=None, book=None, room=None,
                 default="least-request", store=None):  # fmt: skip
        self.view = seen
        self.now_s = START_S
        self.watching = Watching()
        self.limiter = MemoryLimiter() if limiter is None else limiter
        self.leases = Leases(seen.loads, 60.0)
        self.room = WaitingRoom(600.0) if room is None else room
        store = Store(*users) if store is None else store
        parts = Parts(
            view=seen,
            book=book or StrategyBook(),
            users=Users(store, mode, Policy.OPEN),
            limiter=self.limiter,
            leases=self.leases,
            waker=self.watching,
            room=self.room,
            observer=self.watching,
            keys=keys,
        )
        settings = ExchangeSettings(Settings(default), default_output_tokens=10)
        clock = lambda: self.now_s  # noqa: E731 - the clock is the attribute, whatever it is by then
        self.exchange = DecidingExchange(parts, settings, clock=clock, wall=clock, random=Random(0))

    def question(self, body=None, **given):
        """A chat request where nothing else is said."""
        return question(chat() if body is None else body, **given)

    def ask(self, body=None, **given):
        """The answer, which must not have to be waited for."""
        answer = self.exchange.answer(self.question(body, **given))
        assert isinstance(answer, (Forwarded, Refused)), answer
        return answer

    def asking(self, body=None, **given):
        """The answer as a task."""
        return asyncio.ensure_future(self.later(body, **given))

    def later(self, body=None, **given):
        """The answer, which has to be waited for and is not yet."""
        answer = self.exchange.answer(self.question(body, **given))
        assert not isinstance(answer, (Forwarded, Refused)), answer
        return answer

    def change(self, model):
        """The view has another ``model``."""
        self.view.models[model.name] = model
        self.room.model_changed(model.name)


def user(name="ann", rpm=100, tpm=100_000):
    """A record of the user store."""
    return User(name, rpm, tpm)


def status(answer):
    """200: forwarded."""
    return 200 if isinstance(answer, Forwarded) else answer.status


def error(answer):
    """The error's members."""
    return orjson.loads(answer.body)["error"]


def told(answer):
    """The client's headers."""
    return dict(answer.client if isinstance(answer, Forwarded) else answer.headers)

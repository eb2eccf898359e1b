"""Requests on their way: endpoints, charges and forwards as short words, and a routing that remembers what it heard."""

import itertools

from aibrix_operator.gateway.knobs import Knobs
from aibrix_operator.gateway.limits.limiter import Charge, Granted, User
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.request import Api, Request
from aibrix_operator.gateway.strategies.base import Ask
from aibrix_operator.gateway.verdict import Forward, RateLimit
from aibrix_operator.gateway.view import Endpoint, Model

_serial = itertools.count(1)


def endpoint(name="p0", model="m", port=8000):
    return Endpoint(model, "default", name, f"uid-{name}", f"10.0.0.1:{port}")


def endpoints(count, model="m"):
    return tuple(endpoint(f"p{n}", model) for n in range(count))


def user(name="ann", rpm=100, tpm=100_000):
    return User(name, rpm, tpm)


def rps(requests, window_s=1):
    return RateLimit(requests, window_s, str(requests))


def charge(now_s=0.0, to=None, **limits):
    """To one endpoint unless told; each under a lease of its own."""
    to = (endpoint(),) if to is None else to
    return Charge(f"lease-{next(_serial)}", now_s, model="m", endpoints=tuple(to), **limits)


class HeardRouting:
    """Remembers the ends that it was told of."""

    text = "least-request"

    def __init__(self):
        self.ended_with = []

    def pick(self, ask):
        raise AssertionError("nothing is picked here")

    def admitted(self, ask, endpoint):
        raise AssertionError("nothing is admitted here")

    def ended(self, request, endpoint, usage):
        self.ended_with.append((request, endpoint, usage))


def request(api=Api.CHAT, **fields):
    return Request(id=f"request-{next(_serial)}", api=api, path=str(api), model="m", **fields)


def forward(to=None, of=None, routing=None, **more):
    to = to or endpoint()
    of = of or request()
    model = Model(to.model, (to,))
    ask = Ask(of, model, (to,), Loads(), {}, Knobs(), 0.0, None)
    return Forward(model, routing or HeardRouting(), ask, "least-request", to, **more)


def granted(lease, to=None, holds_slot=False, **limits):
    return Granted(Charge(lease, 0.0, model="m", **limits), to, holds_slot=holds_slot)

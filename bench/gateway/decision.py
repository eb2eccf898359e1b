"""What one decision costs of CPU: ``python -m bench.gateway.decision``.

1,000 models, of which a Zipf-like share is asked for. ``decide`` is the pure decision; ``answer`` is all that the
gateway's process does for one question between the wire's parser and its writer: key, user, body, decision, limits in
memory, lease, headers. The request ends after its answer was made, which is not measured.
"""

from __future__ import annotations

import gc
import json
import platform
from collections.abc import Callable
from random import Random
from statistics import median
from time import process_time_ns
from typing import Annotated

import rich
import typer
from rich.table import Table

from aibrix_operator.gateway.decide import Settings, decide
from aibrix_operator.gateway.deciding_exchange import DecidingExchange, ExchangeSettings, Parts
from aibrix_operator.gateway.exchange import Forwarded, Question
from aibrix_operator.gateway.keys import Keys
from aibrix_operator.gateway.knobs import Knobs
from aibrix_operator.gateway.leases import Leases
from aibrix_operator.gateway.limits.limiter import Limit, User
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.limits.users import Mode, Policy, Users
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.parsing import entry
from aibrix_operator.gateway.profiles import parse_config
from aibrix_operator.gateway.request import Request
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.verdict import Forward
from aibrix_operator.gateway.view import Endpoint, Model, View, WakeTarget
from aibrix_operator.gateway.waiting_room import WaitingRoom

MODELS = 1_000
ROUNDS = 5
PATH = "/v1/chat/completions"
KEY = "sk-bench"
_PROFILES = {
    "profiles": {
        "default": {"routingStrategy": "least-request", "requestsPerSecond": 10**9},
        "short": {"routingStrategy": "least-request", "routingConfig": {"promptTokensLt": 1000}},
        "long": {"routingStrategy": "least-request", "routingConfig": {"promptTokensGte": 1000}},
    }
}
_CAPPED = {"profiles": {"default": {"requestsInflight": 64}}}


class _Store:
    def get(self, name: str) -> User:
        return User(name, 10**12, 10**15)


class _Nobody:
    """Wakes and counts nothing."""

    lease = ""

    def wake(self, target: WakeTarget) -> None:
        raise AssertionError("every model is awake")

    def admitted(self, lease: object, decision_s: float) -> None:
        pass

    def refused(self, model: str, status_code: int, decision_s: float, limit: Limit | None = None) -> None:
        raise AssertionError(f"status {status_code}")


def view_of(pods: int, config: object = None) -> View:
    """``MODELS`` models, the first ten of ``pods`` Pods and the others of two: what is asked for is among the ten."""
    read = parse_config(json.dumps(config), Knobs()) if config is not None else None
    view = View(Loads(), is_synced=True)
    for number in range(MODELS):
        name = f"org/model-{number}"
        endpoints = tuple(
            Endpoint(
                name, "ns", f"m{number}-{pod:04}", f"{number}-{pod}", f"10.{number % 250}.{pod // 250}.{pod % 250}:80"
            )
            for pod in range(pods if number < 10 else 2)
        )
        view.models[name] = Model(name, endpoints, config=read)
        for endpoint in endpoints[::3]:
            view.loads.add(endpoint)
    return view


def question_of(model: str, size: int, **headers: str) -> Question:
    """A chat request of about ``size`` bytes."""
    body = {"model": model, "messages": [{"role": "user", "content": "x" * size}], "stream": False, "max_tokens": 16}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Question("POST", PATH, {"authorization": f"Bearer {KEY}"} | named, json.dumps(body).encode())


def request_of(question: Question) -> Request:
    """The question as ``decide`` is given it."""
    request = entry.parse(question, "r", None)
    assert isinstance(request, Request)
    return request


def cost_us(step: Callable[[int], None], times: int) -> float:
    """CPU microseconds of one step, the median of rounds."""
    step(0)
    rounds = []
    for _ in range(ROUNDS):
        gc.collect()
        gc.disable()
        start = process_time_ns()
        for index in range(times):
            step(index)
        rounds.append((process_time_ns() - start) / times / 1000)
        gc.enable()
    return median(rounds)


def deciding(pods: int, times: int, config: object = None, *, counting: bool = False, **headers: str) -> float:
    """Of ``decide`` alone, or ``counting`` each request at its engine, and one that ended, as leases do."""
    view, book, random, settings = view_of(pods, config), StrategyBook(), Random(1), Settings("least-request")
    requests = [request_of(question_of(f"org/model-{number}", 1000, **headers)) for number in range(10)]
    running: list[Endpoint] = []

    def step(index: int) -> None:
        verdict = decide(requests[index % 10], view, book, settings, 1_800_000_000.0, random)
        assert isinstance(verdict, Forward)
        if not counting:
            return
        view.loads.add(verdict.endpoint)
        running.append(verdict.endpoint)
        if len(running) > 100:
            view.loads.remove(running.pop(0))

    return cost_us(step, times)


def answering(size: int, times: int, config: object = None, **headers: str) -> float:
    """Of a whole answer, its lease closed at once."""
    view, nobody = view_of(10, config), _Nobody()
    leases, limiter = Leases(view.loads, 60.0), MemoryLimiter()
    parts = Parts(
        view=view,
        book=StrategyBook(),
        users=Users(_Store(), Mode.OPTIONAL, Policy.OPEN),
        limiter=limiter,
        leases=leases,
        waker=nobody,
        room=WaitingRoom(600.0),
        observer=nobody,
        keys=Keys({KEY: None}),
    )
    exchange = DecidingExchange(parts, ExchangeSettings(Settings("least-request")), random=Random(1))
    questions = [question_of(f"org/model-{number}", size, **headers) for number in range(10)]

    def step(index: int) -> None:
        answer = exchange.answer(questions[index % 10])
        assert isinstance(answer, Forwarded)
        lease = leases.close(answer.upstream[4][1])
        assert lease is not None
        limiter.settle(lease.granted, 20, 0.0)

    return cost_us(step, times)


def figures(times: int) -> dict[str, float]:
    """What was measured → CPU microseconds."""
    return {
        "decide, least-request, 10 Pods": deciding(10, times),
        "decide, least-request, 1,000 Pods": deciding(1_000, times),
        "decide and count, least-request, 10 Pods": deciding(10, times, counting=True),
        "decide and count, least-request, 1,000 Pods": deciding(1_000, times, counting=True),
        "decide, random by header, 10 Pods": deciding(10, times, routing_strategy="random"),
        "decide, profile chosen by hints, 10 Pods": deciding(10, times, _PROFILES, config_profile="auto"),
        "decide, cap on requests at once, 10 Pods": deciding(10, times, _CAPPED),
        "decide, cap on requests at once, 1,000 Pods": deciding(1_000, times, _CAPPED),
        "answer, 1 KB": answering(1_000, times),
        "answer, 1 KB, user's limits and model's rate": answering(1_000, times, _PROFILES, user="ann"),
        "answer, 32 KB": answering(32_000, times),
        "answer, 220 KB": answering(220_000, max(times // 10, 1)),
    }


def main(
    times: Annotated[int, typer.Option(help="Decisions a round; the median of five rounds counts.")] = 20_000,
) -> None:
    """Print the costs."""
    table = Table(title=f"CPU of one decision, {MODELS:,} models, Python {platform.python_version()}")
    table.add_column("what")
    table.add_column("µs", justify="right")
    for name, us in figures(times).items():
        table.add_row(name, f"{us:.1f}")
    rich.print(table)


if __name__ == "__main__":
    typer.run(main)

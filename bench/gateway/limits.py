"""What limits cost: ``python -m bench.gateway.limits``.

In memory: CPU of one request's admission, lease and settlement, with more and more limits. In Redis, which runs on the
same machine: requests a second of clients that ask, settle and ask again, the calls that they share, and their waits.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Annotated, Any

import redis
import rich
import typer
import uvloop
from rich.table import Table

from aibrix_operator.gateway.accounting import Account
from aibrix_operator.gateway.knobs import Knobs
from aibrix_operator.gateway.leases import Lease, Leases
from aibrix_operator.gateway.limits.limiter import Charge, Granted, User
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.limits.redis import RedisLimiter
from aibrix_operator.gateway.limits.store import Store
from aibrix_operator.gateway.limits.users import Policy
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.metrics import Metrics
from aibrix_operator.gateway.request import Api, Request
from aibrix_operator.gateway.settlement import Ended
from aibrix_operator.gateway.settling import Settling
from aibrix_operator.gateway.strategies.base import Ask, Pick, Usage
from aibrix_operator.gateway.token_sizes import TokenSizes
from aibrix_operator.gateway.verdict import Forward, RateLimit
from aibrix_operator.gateway.view import Endpoint, Model
from bench.gateway.redis_server import redis_server

ROUNDS = 5
NEVER = 10**12
PODS = tuple(Endpoint("m", "default", f"p{n}", f"u{n}", f"10.0.0.{n}:8000") for n in range(10))
MODEL = Model("m", PODS)
_USER = {"user": User("ann", NEVER, NEVER), "tokens": 600}
_RPS = {"rps": RateLimit(NEVER, 1, "")}
_SLOT = {"inflight": 10**6}
KINDS: dict[str, dict[str, Any]] = {
    "no limit": {},
    "model RPS": _RPS,
    "user RPM and TPM": _USER,
    "in-flight cap": _SLOT,
    "all four": _USER | _RPS | _SLOT,
}


class _Routing:
    """Hears of ends and keeps nothing."""

    text = "none"

    def pick(self, ask: Ask) -> Pick:
        raise AssertionError("nothing is picked here")

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        raise AssertionError("nothing is admitted here")

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        pass


class _Nobody:
    """Counts nothing."""

    def ended(self, lease: Lease, ended: Ended, account: Account) -> None:
        pass

    def expired(self, lease: Lease) -> None:
        pass

    def unknown_lease(self) -> None:
        pass


REQUEST = Request("r", Api.CHAT, "/v1/chat/completions", "m", stream=True)
FORWARD = Forward(
    MODEL, _Routing(), Ask(REQUEST, MODEL, PODS, Loads(), {}, Knobs(), 0.0, Random(1)), "least-request", PODS[0]
)


def cost_us(step: Callable[[], None], times: int) -> float:
    """CPU microseconds of one step, the median of rounds."""
    step()
    rounds = []
    for _ in range(ROUNDS):
        gc.collect()
        start = time.process_time_ns()
        for _ in range(times):
            step()
        rounds.append((time.process_time_ns() - start) / times / 1000)
    return median(rounds)


def admission_us(limits: dict[str, Any], times: int) -> float:
    """Admit and settle in memory, nothing else."""
    limiter, ids = MemoryLimiter(), itertools.count()

    def step() -> None:
        granted = limiter.admit(Charge(f"{next(ids)}", 1e9, model="m", endpoints=PODS, **limits))
        assert isinstance(granted, Granted)
        limiter.settle(granted, 700, 1e9)

    return cost_us(step, times)


def request_us(limits: dict[str, Any], times: int, *, metrics: bool) -> float:
    """The same with a lease, its end in Envoy's log, and the metrics of both."""
    limiter, loads = MemoryLimiter(), Loads()
    leases = Leases(loads, 30)
    counted = Metrics(lambda: {"m": MODEL}, "gw-0")
    settling = Settling(leases, limiter, counted if metrics else _Nobody(), TokenSizes())

    def step() -> None:
        granted = limiter.admit(Charge(leases.new_id(), 1e9, model="m", endpoints=PODS, **limits))
        assert isinstance(granted, Granted)
        lease = leases.open(FORWARD, granted, REQUEST, 1e9)
        if metrics:
            counted.admitted(lease, 0.00004)
        told = Ended(lease.id, 200, frozenset(), 2.0, 0.1, 900, 40_000, "", 300, 400, 700)
        settling.take((told,), 1e9)

    return cost_us(step, times)


@dataclass(frozen=True, slots=True)
class Shared:
    """One run of clients over Redis."""

    requests_a_second: float
    calls_a_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Of this process, for each request."""


async def sharing(url: str, limits: dict[str, Any], clients: int, seconds: float) -> Shared:
    """Clients that ask, are told, settle and ask again."""
    store = Store(url, within_s=5)  # a busy machine is no dead Redis
    limiter = RedisLimiter(store, Policy.CLOSED, f"bench:{time.time_ns()}")
    await store.start()
    ids, waits, until_s = itertools.count(), list[float](), time.monotonic() + seconds

    async def client() -> None:
        while (began_s := time.monotonic()) < until_s:
            answer = limiter.admit(Charge(f"{next(ids)}", time.time(), model="m", endpoints=PODS, **limits))
            assert not isinstance(answer, Granted)
            granted = await answer  # type: ignore[misc]  # Redis is up: it is awaited
            assert isinstance(granted, Granted), granted
            waits.append(time.monotonic() - began_s)
            limiter.settle(granted, 700, time.time())

    with redis.Redis.from_url(url) as asking:
        before, began_s, cpu_s = _calls(asking), time.monotonic(), time.process_time()
        await asyncio.gather(*(client() for _ in range(clients)))
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
        calls = _calls(asking) - before
    await limiter.leave()
    await store.stop()
    cuts = quantiles(waits, n=100)
    return Shared(len(waits) / took_s, calls / took_s, cuts[49] * 1000, cuts[98] * 1000, cpu_s / len(waits) * 1e6)


def _calls(asking: redis.Redis) -> int:
    stats: dict[str, dict[str, int]] = asking.info("commandstats")  # type: ignore[assignment]  # sync client
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


def main(
    times: Annotated[int, typer.Option(help="Requests of each round in memory.")] = 20_000,
    seconds: Annotated[float, typer.Option(help="Length of each run over Redis.")] = 3,
) -> None:
    """Print both tables."""
    rich.print(f"Python {platform.python_version()}, median of {ROUNDS} rounds")
    memory = Table("in memory", "admit + settle, µs", "+ lease and log, µs", "+ metrics, µs")
    for name, limits in KINDS.items():
        costs = (
            admission_us(limits, times),
            request_us(limits, times, metrics=False),
            request_us(limits, times, metrics=True),
        )
        memory.add_row(name, *(f"{cost:.1f}" for cost in costs))
    rich.print(memory)
    over = Table("in Redis", "clients", "requests/s", "calls/s", "p50 ms", "p99 ms", "our CPU a request, µs")
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder)) as url:
        for name in ("model RPS", "in-flight cap", "all four"):
            for clients in (1, 16, 64):
                run = uvloop.run(sharing(url, KINDS[name], clients, seconds))
                figures = (f"{run.requests_a_second:,.0f}", f"{run.calls_a_second:,.0f}")
                rest = (f"{run.p50_ms:.2f}", f"{run.p99_ms:.2f}", f"{run.cpu_us:.0f}")
                over.add_row(name, str(clients), *figures, *rest)
    rich.print(over)


if __name__ == "__main__":
    typer.run(main)

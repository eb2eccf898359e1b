"""Clients that ask gateways at a steady rate, and what became of each of their requests."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import aiohttp
import orjson

TOKENS = 2
WITHIN_S = 30.0
BEHIND_S = 0.25
"""What is due for longer is left out: the rate that was reached is lower then."""
_KEPT = 5

Choose = Callable[[int], tuple[str, str]]
"""A request's number → the gateway's URL, and the model that is asked for."""


@dataclass(slots=True)
class Tally:
    """Every request is in ``statuses`` once it has ended."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Status, or the name of what ended the exchange instead."""
    failures: list[str] = field(default_factory=list)
    """The first that had no 200."""
    strangers: list[str] = field(default_factory=list)
    """Answers of another model than was asked for."""
    slowest_s: float = 0.0
    seconds: float = 0.0

    @property
    def asked(self) -> int:
        return self.statuses.total()

    @property
    def failed(self) -> int:
        """All but the answers with 200."""
        return self.asked - self.statuses["200"]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.asked / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        counts = ", ".join(f"{status}: {count:,}" for status, count in sorted(self.statuses.items()))
        told = f"{self.asked:,} requests in {self.seconds:.1f} s ({self.rate:.0f}/s), slowest {self.slowest_s:.2f} s"
        return f"{told}; {counts}" + "".join(f"; {failure}" for failure in self.failures)


def evenly(urls: Sequence[str], models: Sequence[str]) -> Choose:
    """Every model through every gateway, in turn."""
    pairs = [(url, model) for model in models for url in urls]
    return lambda number: pairs[number % len(pairs)]


class Clients:
    """So many connections that share one rate. What is late is sent at once, what is very late not at all."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        choose: Choose,
        rate: float | None,
        connections: int,
        *,
        user: str = "",
    ) -> None:
        """``rate`` None: as fast as answers come."""
        self.tally = Tally()
        self._session = session
        self._choose = choose
        self._pause_s = 0.0 if rate is None else 1 / rate
        self._connections = connections
        self._user = user
        self._numbers = itertools.count()
        self._due_s = 0.0
        self._is_over = False

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[Tally]:
        """They ask as long as the block, and the tally is complete after it."""
        began_s = self._due_s = time.monotonic()
        workers = [asyncio.create_task(self._work()) for _ in range(self._connections)]
        try:
            yield self.tally
        finally:
            self._is_over = True
            await asyncio.gather(*workers)
            self.tally.seconds = time.monotonic() - began_s

    async def _work(self) -> None:
        while not self._is_over:
            now_s = time.monotonic()
            if self._due_s < now_s - BEHIND_S:
                self._due_s = now_s
            due_s = self._due_s
            self._due_s += self._pause_s
            if due_s > now_s:
                await asyncio.sleep(due_s - now_s)
            await self._ask(*self._choose(next(self._numbers)))

    async def _ask(self, url: str, model: str) -> None:
        tally, began_s = self.tally, time.monotonic()
        try:
            status, text = await ask(self._session, url, model, user=self._user)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            outcome, text = type(error).__name__, str(error).encode()
        else:
            outcome = str(status)
        tally.statuses[outcome] += 1
        tally.slowest_s = max(tally.slowest_s, time.monotonic() - began_s)
        if outcome != "200":
            if len(tally.failures) < _KEPT:
                tally.failures.append(f"{outcome} for {model} at {url}: {text[:200].decode(errors='replace')}")
        elif orjson.loads(text)["model"] != model:
            tally.strangers.append(f"asked for {model}, got {text[:200].decode(errors='replace')}")


async def ask(
    session: aiohttp.ClientSession,
    url: str,
    model: str,
    *,
    tokens: int = TOKENS,
    user: str = "",
    within_s: float = WITHIN_S,
) -> tuple[int, bytes]:
    """One question, and its whole answer."""
    question = {"model": model, "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": tokens}
    headers = {"content-type": "application/json"} | ({"user": user} if user else {})
    timeout = aiohttp.ClientTimeout(total=within_s)
    body = orjson.dumps(question | {"ignore_eos": True})
    async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers, timeout=timeout) as answer:
        return answer.status, await answer.read()


@contextlib.asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """One for all clients: no limit but theirs, and no proxy."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as opened:
        yield opened

"""A run from the first claim to the last count."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop

from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.sandbox import pool
from bench.chaos.stage import Stage
from bench.soak import clients
from bench.soak import stage as staging
from bench.soak.clients import Clients, Tally, evenly
from bench.soak.going import Going
from bench.soak.memory import Memory, last_half
from bench.soak.stage import Setting

PEAK_S, PEAK_CONNECTIONS = 10.0, 64
CONNECTIONS = 48
GROWTH_ALLOWED = 0.03
"""Of the last quarter's memory over that of the quarter before."""
HONEST = {"200", "400", "429", "503"}
"""What a client may be told: a claim that is being made anew does not exist (400), or has no engine yet (503)."""
_START_WITHIN_S = 120.0
_AT_REST_WITHIN_S = 5.0
"""Less than a lease: nothing is left to expiry."""


@dataclass(slots=True)
class Report:
    """What came of a run. ``broken`` is empty when all is well."""

    seconds: float
    peak: float = 0.0
    tally: Tally = field(default_factory=Tally)
    acts: Counter[str] = field(default_factory=Counter)
    memory: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Process → MiB at the end, growth in the last quarter."""
    stream_s: float = 0.0
    at_rest_s: float = 0.0
    """From the last answer until every count was 0."""
    broken: list[str] = field(default_factory=list)


def run(seconds: float, seed: int) -> Report:
    """A sandbox of its own, and the run in it."""
    with tempfile.TemporaryDirectory(prefix="aibrix-soak-") as scratch, staging.setting(Path(scratch)) as setting:
        return uvloop.run(_play(setting, seconds, seed))


async def _play(setting: Setting, seconds: float, seed: int) -> Report:
    report = Report(seconds)
    async with Stage.open(setting.sandbox) as stage, clients.session() as session:
        for model in (staging.LASTING, *staging.ASKED):
            await stage.cluster.create(MODEL_CLAIMS, pool.NAMESPACE, staging.claim_body(model))
        await _until(lambda: all(map(stage.target, (staging.LASTING, *staging.ASKED))), _START_WITHIN_S)
        await asyncio.sleep(1.0)  # the gateways hear of it as we do
        choose = evenly(setting.urls, staging.ASKED)
        async with Clients(session, choose, None, PEAK_CONNECTIONS, user=staging.USER).asking() as peak:
            await asyncio.sleep(PEAK_S)
        report.peak = peak.rate
        report.broken += [f"at the peak: {peak}"] if peak.failed else []
        going, memory = Going(stage, seed), Memory(setting.processes())
        stream = asyncio.create_task(_stream(session, setting.urls[1], seconds))
        asking = Clients(session, choose, peak.rate / 2, CONNECTIONS, user=staging.USER)
        async with _alongside(going.run(), memory.run()) as alongside, asking.asking() as report.tally:
            await asyncio.wait([alongside], timeout=seconds)
        report.broken += await stream
        report.acts, report.stream_s = going.acts, seconds
        report.memory = {name: last_half(figures) for name, figures in memory.seen.items()}
        await _rest(setting, session, report)
    _judge(report, setting)
    return report


@contextlib.asynccontextmanager
async def _alongside(*work: Any) -> AsyncIterator[asyncio.Future[Any]]:
    """Runs as long as the block. What fails meanwhile is raised at its end."""
    together = asyncio.gather(*work)
    try:
        yield together
        if together.done():
            together.result()
    finally:
        together.cancel()
        await asyncio.gather(together, return_exceptions=True)


async def _stream(session: aiohttp.ClientSession, url: str, seconds: float) -> list[str]:
    """A stream as long as the run, of a model that takes one request at a time; what was wrong with it."""
    tokens = round(seconds * staging.TOKENS_PER_S)
    question = {"model": staging.LASTING, "messages": [{"role": "user", "content": "Tell me all."}]}
    body = orjson.dumps(question | {"max_tokens": tokens, "stream": True, "ignore_eos": True})
    headers = {"content-type": "application/json"}
    timeout = aiohttp.ClientTimeout(total=None)
    address = f"{url}/v1/chat/completions"
    try:
        async with session.post(address, data=body, headers=headers, timeout=timeout) as answer:
            await asyncio.sleep(min(30.0, seconds / 2))  # longer than a lease without renewals
            status, _ = await clients.ask(session, url, staging.LASTING)
            text = (await answer.read()).decode()
    except (aiohttp.ClientError, TimeoutError) as error:
        return [f"the lasting stream broke off: {type(error).__name__}: {error}"]
    broken = [] if status == 429 else [f"beside the lasting stream, which has the only slot, a request got {status}"]
    if answer.status != 200 or not text.rstrip().endswith("[DONE]"):
        broken.append(f"the lasting stream ended with {answer.status}: {text[-200:]!r}")
    return broken


async def _rest(setting: Setting, session: aiohttp.ClientSession, report: Report) -> None:
    began_s = time.monotonic()
    left = [""]
    while left and time.monotonic() - began_s < _AT_REST_WITHIN_S:
        left = await _left(setting, session)
        await asyncio.sleep(0.05)
    report.at_rest_s = time.monotonic() - began_s
    report.broken += [f"{report.at_rest_s:.0f} s after the last answer: {each}" for each in left]


async def _left(setting: Setting, session: aiohttp.ClientSession) -> list[str]:
    """Counts that are not 0."""
    left = setting.left_in_redis()
    for gateway in setting.gateways:
        async with session.get(f"{gateway.api_url}/status") as answer:
            requests = (await answer.json())["requests"]
        left += [f"{gateway.name}: {count} {what}" for what, count in requests.items() if count]
        async with session.get(f"{gateway.api_url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        left += [f"{gateway.name}: {line}" for line in lines if line.startswith(_ZERO) and not line.endswith(" 0.0")]
    return left


_ZERO = (
    "gateway_in_flight_requests",
    "gateway_model_in_flight_requests",
    "aibrix_gateway_leases_expired_total",
    "aibrix_gateway_redis_outages_total",
)


def _judge(report: Report, setting: Setting) -> None:
    report.broken += report.tally.strangers
    odd = {status: count for status, count in report.tally.statuses.items() if status not in HONEST}
    if odd:
        report.broken.append(f"answers that are none: {odd}; {'; '.join(report.tally.failures)}")
    for name, (_, growth) in report.memory.items():
        if growth > GROWTH_ALLOWED:
            report.broken.append(f"{name} grew by {growth:.1%} in the last quarter")


async def _until(is_so: Callable[[], bool], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - what others' processes do is polled
            await asyncio.sleep(0.2)

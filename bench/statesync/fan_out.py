"""How long a change of one process takes until another has applied it.

The value of an entity is the machine's monotonic clock when it changed, so that the listener only looks at its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from aibrix_operator.statesync.metrics import StatesyncMetrics
from aibrix_operator.statesync.options import Options
from aibrix_operator.statesync.store import RedisStore
from aibrix_operator.statesync.sync import StateSync
from aibrix_operator.statesync.times import NewestTimes

NAMESPACE = "blocks"


class Timed(NewestTimes):
    """Notes how old each value is when it is applied."""

    def __init__(self) -> None:
        super().__init__(NAMESPACE, 1200, time.monotonic_ns)
        self.ages_ms: list[float] = []

    @property
    def record_ttl_s(self) -> float:
        """See ``OwnTtl``."""
        return 1200

    def apply_remote(self, entity: str, data: bytes) -> bool:
        """Only the first time that a value comes counts."""
        before_ns = self.last_used_ns(entity) or 0
        behind = super().apply_remote(entity, data)
        if int(data) > before_ns:
            self.ages_ms.append((time.monotonic_ns() - int(data)) / 1e6)
        return behind


def replica(url: str) -> tuple[StateSync, Timed, Redis, CollectorRegistry]:
    """One replica at the defaults."""
    client, options, registry = Redis.from_url(url), Options(), CollectorRegistry()
    sync, state = StateSync(RedisStore(client, options), options, StatesyncMetrics(registry)), Timed()
    sync.register(state)
    return sync, state, client, registry


async def started(sync: StateSync, registry: CollectorRegistry) -> None:
    """Begin, and wait until peers are heard."""
    sync.start()
    while not registry.get_sample_value("aibrix_statesync_listening", {"namespace": NAMESPACE}):  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # a metric has no event to wait for


def percentile(values: list[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


async def listen(url: str) -> None:
    """The listener's process: says ``listening``, and at the end of its input what it saw."""
    sync, state, client, registry = replica(url)
    await started(sync, registry)
    print("listening", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    ages_ms = state.ages_ms
    seen = {"count": len(ages_ms), "heard_cpu_s": time.process_time()} | (
        {f"p{p}": percentile(ages_ms, p / 100) for p in (50, 99, 100)} if ages_ms else {}
    )
    print(json.dumps(seen), flush=True)
    await sync.stop()
    await client.aclose()


async def measure(url: str, requests_per_s: float, blocks: int, seconds: float) -> dict[str, float]:
    """Change ``blocks`` entities at once, as a request does, so many times a second."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "bench.statesync.fan_out", url)
    listener = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert listener.stdout is not None
    await listener.stdout.readline()
    sync, state, client, registry = replica(url)
    await started(sync, registry)
    began_s, began_cpu_s, request = time.monotonic(), time.process_time(), 0
    while (now_s := time.monotonic()) < began_s + seconds:
        while request < (now_s - began_s) * requests_per_s:
            for block in range(blocks):
                state.use(f"{request % 5000}-{block}")
            request += 1
        await asyncio.sleep(0.001)
    await asyncio.sleep(1)
    published = registry.get_sample_value(
        "aibrix_statesync_messages_total", {"namespace": NAMESPACE, "op": "published"}
    )
    await sync.stop()
    await client.aclose()
    out, _ = await listener.communicate(b"")  # the end of its input
    seen: dict[str, float] = json.loads(out)
    cpu_s = time.process_time() - began_cpu_s
    return seen | {"changed": request * blocks, "messages": published or 0, "told_cpu_s": cpu_s}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    asyncio.run(listen(parser.parse_args().url))

"""How many commands Redis serves for a fleet that changes nothing, by its own count.

Scaled: a tenth of the entries, and all times a tenth, so that six minutes pass in 36 seconds. Commands an entry and
commands a cycle are the same; the figures are those of an hour at ten times the entries.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from aibrix_operator.statesync.metrics import StatesyncMetrics
from aibrix_operator.statesync.options import Options
from aibrix_operator.statesync.store import RedisStore
from aibrix_operator.statesync.sync import StateSync
from aibrix_operator.statesync.times import NewestTimes

FASTER = 10
FEWER = 10
COUNTED = ("scan", "mget", "set", "setex", "psetex", "publish", "del", "eval", "pttl")
READING = ("scan", "mget")


@dataclass(frozen=True)
class Mode:
    """One way to run the layer."""

    name: str
    announce: bool
    ttl_s: float


MODES = (
    Mode("loop alone, as the seed's: TTL 2 min, each replica refreshes", announce=False, ttl_s=120),
    Mode("loop alone: TTL 20 min, no refresh", announce=False, ttl_s=1200),
    Mode("announced: TTL 2 min, shared refresh", announce=True, ttl_s=120),
    Mode("announced: TTL 20 min, no refresh (the prefix table)", announce=True, ttl_s=1200),
)


async def counted(client: Redis) -> dict[str, int]:
    """Calls by command."""
    stats = await client.info("commandstats")
    return {name: int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in COUNTED}


async def measure(url: str, mode: Mode, replicas: int, entries: int, minutes: float) -> dict[str, float]:
    """Commands an hour, of all replicas together, at ``entries`` live entries."""
    options = Options(
        period_s=10 / FASTER,
        record_ttl_s=mode.ttl_s / FASTER,
        repair_period_s=60 / FASTER,
        announce=mode.announce,
    )
    clients = [Redis.from_url(url) for _ in range(replicas)]
    await clients[0].flushall()
    fleet: list[tuple[StateSync, NewestTimes]] = []
    for client in clients:
        state = NewestTimes("blocks", 1200 / FASTER, time.time_ns)
        sync = StateSync(RedisStore(client, options), options, StatesyncMetrics(CollectorRegistry()))
        sync.register(state)
        fleet.append((sync, state))
    seconds = minutes * 60 / FASTER
    for at in range(entries // FEWER):
        fleet[0][1].use(str(at))
    for sync, _ in fleet:
        sync.start()
    await asyncio.sleep(6 * options.period_s)  # every replica has learned everything
    before = await counted(clients[0])
    await asyncio.sleep(seconds)
    after = await counted(clients[0])
    known = min(len(state.live_ids()) for _, state in fleet)
    for sync, _ in fleet:
        await sync.stop()
    for client in clients:
        await client.aclose()
    hourly = 60 / minutes
    # What an entry costs scales with the entries; beats do not.
    per_hour = {c: (after[c] - before[c]) * hourly * (1 if c == "publish" else FEWER) for c in COUNTED}
    writing = sum(per_hour[c] for c in COUNTED if c not in (*READING, "publish"))
    reading = sum(per_hour[c] for c in READING)
    return {
        "known": known * FEWER,
        "reading": reading,
        "writing": writing,
        "publish": per_hour["publish"],
        "all": reading + writing + per_hour["publish"],
    }

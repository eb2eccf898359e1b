"""A real process that holds slots in a real Redis, killed without a word; and one that stands still."""

import asyncio
import signal
import sys
import time

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from aibrix_operator.gateway.limits import keys
from aibrix_operator.gateway.limits.limiter import Charge, Denied, Granted, Limit
from aibrix_operator.gateway.limits.redis import RedisLimiter
from aibrix_operator.gateway.limits.running import RunningCounts
from aibrix_operator.gateway.limits.store import Store
from aibrix_operator.gateway.limits.users import Policy
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.view import Endpoint

POD = Endpoint("m", "default", "p0", "uid-0", "10.0.0.1:8000")
CAP = 3
LEASE_S = 3.0
SLACK_S = 15.0
"""For a machine that does much else."""

HOLDER = f"""
import asyncio, sys
sys.path.insert(0, {sys.path[0]!r})
from test_a_killed_replica_frees_its_slots import *

async def main():
    replica = await Replica(sys.argv[1], "killed").start()
    print(sum([isinstance(await replica.admit(), Granted) for _ in range(CAP + 1)]), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Replica:
    """Limits of one gateway process."""

    def __init__(self, url, name):
        field = f"{name}:{time.time_ns()}"
        self.store = Store(url, within_s=5)
        self.limiter = RedisLimiter(self.store, Policy.LOCAL, field)
        self.running = RunningCounts(self.store, Loads(), self.limiter, field)
        self._task = None

    async def start(self):
        await self.store.start()
        self._task = asyncio.create_task(self.running.run())
        return self

    async def close(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.store.stop()

    async def admit(self):
        lease = f"{id(self)}-{time.monotonic_ns()}"
        return await self.limiter.admit(Charge(lease, time.time(), model="m", endpoints=(POD,), inflight=CAP))


@pytest_asyncio.fixture
async def living(own_redis_server):
    replica = await Replica(own_redis_server.url, "living").start()
    yield replica
    await replica.close()


@pytest_asyncio.fixture
async def holder(own_redis_server, living):
    """A process that has taken every slot."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDER, own_redis_server.url), stdout=asyncio.subprocess.PIPE
    )
    assert int(await process.stdout.readline()) == CAP
    assert await living.admit() == Denied(Limit.INFLIGHT)
    yield process
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest_asyncio.fixture
async def redis(own_redis_server):
    async with Redis.from_url(own_redis_server.url, decode_responses=True) as asked:
        yield asked


async def until_free(living):
    """The first slot is had."""
    began_s = time.monotonic()
    while not isinstance(await living.admit(), Granted):
        assert time.monotonic() < began_s + LEASE_S + SLACK_S
        await asyncio.sleep(0.02)


async def silence_s(redis, last_s):
    """Seconds since ``last_s``, by the clock that counts."""
    whole_s, microseconds = await redis.time()
    return whole_s + microseconds / 1e6 - last_s


async def others_are(living, count):
    deadline_s = time.monotonic() + SLACK_S
    while living.running.others != count:
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.02)


@pytest.mark.acceptance("GW-85")
async def test_a_killed_replica_frees_its_slots_three_seconds_after_its_last_sign_of_life(holder, living, redis):
    holder.send_signal(signal.SIGKILL)
    await holder.wait()
    signs = dict(await redis.zrange(keys.GATEWAYS, 0, -1, withscores=True))
    (last_s,) = (at_s for gateway, at_s in signs.items() if gateway.startswith("killed:"))
    await until_free(living)
    assert await silence_s(redis, last_s) > LEASE_S
    assert [type(await living.admit()) for _ in range(CAP)] == [Granted] * (CAP - 1) + [Denied]


async def test_a_replica_that_stood_still_counts_again_when_it_goes_on(holder, living):
    holder.send_signal(signal.SIGSTOP)
    await until_free(living)
    await others_are(living, 0)
    assert isinstance(await living.admit(), Granted)
    holder.send_signal(signal.SIGCONT)
    await others_are(living, 1)
    assert await living.admit() == Denied(Limit.INFLIGHT)

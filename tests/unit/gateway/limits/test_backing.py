"""Where limits and users live, as the options say; and what that means for readiness and the status page."""

import json
import logging

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from redis_server import RedisServer
from shared_limits import PATIENT_S, client, until
from traffic_builders import charge, user

from aibrix_operator.gateway.backing import Backing
from aibrix_operator.gateway.limits import keys
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.limits.redis import RedisLimiter
from aibrix_operator.gateway.limits.store import Store
from aibrix_operator.gateway.limits.users import Policy
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.options import Options


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A Redis that waits for its turn on a busy machine is not away."""
    monkeypatch.setitem(Store.__init__.__kwdefaults__, "within_s", PATIENT_S)


class Clock:
    now_s = 1_000_000.0

    def __call__(self):
        return self.now_s


def backing(clock=None, **options):
    registry = CollectorRegistry()
    return Backing(Options(name="gw-0", **options), registry, Loads(), clock=clock or Clock()), registry


async def resolved(users, name):
    found = users.resolve(name)
    return await found if hasattr(found, "__await__") else found


async def test_without_redis_all_is_kept_in_memory_and_said_to_be(caplog):
    one, _ = backing()
    await one.start()
    assert isinstance(one.limiter, MemoryLimiter)
    assert (one.problems(), one.status()["store"]) == ([], "memory")
    assert "in memory" in caplog.text
    assert await resolved(one.users, "ann") is None
    await one.close()


async def test_with_redis_limits_are_shared_and_users_are_its_records(own_redis_server):
    one, registry = backing(redis_url=own_redis_server.url)
    await one.start()
    await until(lambda: not one.problems())
    assert isinstance(one.limiter, RedisLimiter)
    async with client(own_redis_server.url) as redis:
        await redis.set("aibrix-users/ann", json.dumps({"rpm": 5}))
        assert await resolved(one.users, "ann") == user("ann", 5, 5000)
        granted = await one.limiter.admit(charge(1, inflight=1))
        assert await redis.hlen(keys.slots(granted.endpoint.key)) == 1
        assert one.status()["redis"]["up"] is True
        page = generate_latest(registry).decode()
        assert 'aibrix_gateway_redis_up{policy="local"} 1.0' in page
        assert "aibrix_gateway_redis_outages_total 0.0" in page
        assert "aibrix_gateway_peers 0.0" in page
        await one.close()
        assert await redis.hlen(keys.slots(granted.endpoint.key)) == 0
        assert await redis.zcard(keys.GATEWAYS) == 0


async def test_a_file_of_users_comes_before_redis(own_redis_server, tmp_path):
    path = tmp_path / "users"
    path.write_text("[{name: ann, rpm: 7}]")
    one, _ = backing(redis_url=own_redis_server.url, users_file=path)
    await one.start()
    async with client(own_redis_server.url) as redis:
        await redis.set("aibrix-users/ann", json.dumps({"rpm": 5}))
    assert await resolved(one.users, "ann") == user("ann", 7, 7000)
    await one.close()


@pytest.mark.acceptance("GW-119")
@pytest.mark.parametrize("policy", Policy)
async def test_a_redis_that_is_down_at_the_start_is_waited_for_a_while_or_as_the_policy_says(tmp_path, policy, caplog):
    caplog.set_level(logging.CRITICAL, "aibrix_operator.gateway.limits")
    server, clock = RedisServer(tmp_path), Clock()
    one, _ = backing(clock, redis_url=server.url, redis_away=policy)
    await one.start()
    assert one.problems() == ["Redis has not answered yet"]
    clock.now_s += 11
    assert bool(one.problems()) is (policy is Policy.CLOSED)
    assert (one.status()["redis"]["up"], one.status()["redis"]["outages"]) == (False, 1)
    await one.close()


async def test_a_redis_that_is_lost_later_leaves_the_replica_ready(own_redis_server, caplog):
    caplog.set_level(logging.CRITICAL, "aibrix_operator.gateway.limits")
    one, _ = backing(redis_url=own_redis_server.url, redis_away=Policy.CLOSED)
    await one.start()
    await until(lambda: not one.problems())
    own_redis_server.stop()
    await until(lambda: not one.status()["redis"]["up"])
    assert one.problems() == []
    assert one.status()["redis"]["last_error"]
    await one.close()

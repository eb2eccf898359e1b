"""Users whose records are in Redis, as upstream's administrators write them."""

import asyncio
import json

import pytest
from shared_limits import PATIENT_S, client, until
from traffic_builders import user

from aibrix_operator.gateway.limits.store import Store
from aibrix_operator.gateway.limits.user_records import RedisUsers
from aibrix_operator.gateway.limits.users import StoreAwayError


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
async def redis(own_redis_server):
    async with client(own_redis_server.url) as asking:
        yield asking


@pytest.fixture
async def store(own_redis_server):
    one = Store(own_redis_server.url, within_s=PATIENT_S)
    await one.start()
    yield one
    await one.stop()


async def got(users, name):
    found = users.get(name)
    return await found if hasattr(found, "__await__") else found


async def test_a_record_is_read_once_in_a_while(redis, store):
    clock = Clock()
    users = RedisUsers(store, clock=clock)
    await redis.set("aibrix-users/ann", json.dumps({"name": "ann", "rpm": 5, "tpm": 0}))
    assert await got(users, "ann") == user("ann", 5, 5000)
    await redis.set("aibrix-users/ann", json.dumps({"name": "ann", "rpm": 6, "tpm": 7}))
    clock.now_s = 9
    assert users.get("ann") == user("ann", 5, 5000)
    clock.now_s = 11
    assert await got(users, "ann") == user("ann", 6, 7)


async def test_an_unknown_name_is_nobody_and_remembered_as_such(redis, store):
    users = RedisUsers(store)
    assert await got(users, "bob") is None
    await redis.set("aibrix-users/bob", "{}")
    assert users.get("bob") is None


@pytest.mark.parametrize("record", ["{", "[]", '{"rpm": -1}', '{"rpm": "many"}'])
async def test_a_user_with_a_broken_record_has_the_default_limits(redis, store, record, caplog):
    await redis.set("aibrix-users/ann", record)
    assert await got(RedisUsers(store), "ann") == user("ann", 100, 100_000)
    assert "ann" in caplog.text


async def test_a_record_counts_for_the_name_that_it_is_stored_under(redis, store):
    await redis.set("aibrix-users/ann", '{"name": "bob", "rpm": 3}')
    assert await got(RedisUsers(store), "ann") == user("ann", 3, 3000)


async def test_while_redis_is_away_known_users_keep_their_limits_and_others_cannot_be_told(
    redis, store, own_redis_server
):
    clock = Clock()
    users = RedisUsers(store, clock=clock)
    await redis.set("aibrix-users/ann", '{"rpm": 5}')
    await got(users, "ann")
    own_redis_server.stop()
    clock.now_s = 100
    assert await got(users, "ann") == user("ann", 5, 5000)
    await until(lambda: not store.is_up)
    assert users.get("ann") == user("ann", 5, 5000)
    with pytest.raises(StoreAwayError):
        users.get("bob")


async def test_a_name_that_is_read_while_redis_goes_away_cannot_be_told(store, own_redis_server):
    users = RedisUsers(store)
    own_redis_server.stop()
    with pytest.raises(StoreAwayError):
        await got(users, "bob")


async def test_no_more_than_a_stated_number_of_names_is_remembered(store):
    users = RedisUsers(store, kept=3)
    for name in "abcd":
        await got(users, name)
    assert set(users._known) == set("bcd")
    users.get("b")
    await got(users, "e")
    assert set(users._known) == set("bde")


async def test_a_burst_of_users_is_read_in_few_calls_and_each_name_once(redis, store):
    users = RedisUsers(store)
    await redis.config_resetstat()
    names = [f"user-{n}" for n in range(300)] * 2
    await asyncio.gather(*(got(users, name) for name in names))
    stats = await redis.info("commandstats")
    assert stats["cmdstat_mget"]["calls"] == 2
    assert set(users._known) == set(names)


async def test_who_stops_waiting_for_a_record_leaves_it_to_those_who_wait_on(redis, store):
    users = RedisUsers(store)
    await redis.set("aibrix-users/ann", '{"rpm": 5}')
    leaving, staying = (asyncio.create_task(got(users, "ann")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == user("ann", 5, 5000)
    assert leaving.cancelled()

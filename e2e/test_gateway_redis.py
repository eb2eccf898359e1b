"""Three gateways that share a Redis limit as one would, and serve awake models without it."""

from __future__ import annotations

import json

import pytest
import redis as redis_client

from e2e.api import eventually
from e2e.gateway import Gateway
from tests.redis_server import RedisServer

MODEL = "limited-model"
QUESTION = {"model": MODEL, "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def served(new_pool, gateways: list[Gateway]) -> str:
    pool = new_pool("limited")
    pool.apply(MODEL)
    pool.wait_active(MODEL)
    for gateway in gateways:
        eventually("the gateway serves it", lambda gateway=gateway: gateway.chat(MODEL).status == 200)
    return MODEL


def _as_user(gateway: Gateway, name: str):
    return gateway.ask("POST", "/v1/chat/completions", QUESTION, {"content-type": "application/json", "user": name})


def _shared(gateway: Gateway):
    found = json.loads(gateway.look("/status").text)["limits"]
    assert found["store"] == "redis"
    return found["redis"]


def test_a_users_requests_are_counted_over_all_gateways(served, gateways: list[Gateway], redis: RedisServer):
    with redis_client.Redis.from_url(redis.url) as client:
        client.set("aibrix-users/ann", json.dumps({"name": "ann", "rpm": 5, "tpm": 0}))
    replies = [_as_user(gateways[number % 3], "ann") for number in range(12)]
    statuses = [reply.status for reply in replies]
    # The minute may turn in between, once.
    assert 5 <= statuses.count(200) <= 10
    refused = next(reply for reply in replies if reply.status == 429)
    assert refused.error == ("user: ann has exceeded RPM: 5", "rate_limit_error", "rate_limit_exceeded", None)
    assert refused.headers["x-error-rpm-exceeded"] == "true"


def test_awake_models_are_served_while_redis_is_away_and_it_is_told(
    served, gateways: list[Gateway], redis: RedisServer
):
    eventually("all have it", lambda: all(_shared(gateway)["up"] for gateway in gateways))
    redis.stop()
    try:
        for _ in range(5):
            assert {_as_user(gateway, "bob").status for gateway in gateways} == {200}
        eventually("it is told", lambda: not any(_shared(gateway)["up"] for gateway in gateways))
        assert {gateway.look("/readyz").status for gateway in gateways} == {200}
        assert {_shared(gateway)["while_away"] for gateway in gateways} == {"local"}
    finally:
        redis.start()  # empty
    eventually("all have it again", lambda: all(_shared(gateway)["up"] for gateway in gateways))
    assert {_as_user(gateway, "bob").status for gateway in gateways} == {200}

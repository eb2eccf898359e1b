"""A sleeping model is woken by a request: once for a burst of them, and answered honestly meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import pytest

from aibrix_operator.api import names
from e2e.api import eventually
from e2e.gateway import Gateway
from e2e.pool import CARD, GIB, Pool, phase, reason

BUSY_S = 3600


@pytest.fixture(scope="module")
def pool(new_pool) -> Iterator[Pool]:
    """One card, whose model belongs to this file."""
    made = new_pool("wakes")
    made.set_policy(sleepAfterSeconds=BUSY_S)
    made.apply("wake-a")
    made.wait_active("wake-a")
    return made


def _put_to_sleep(pool: Pool, claim: str) -> None:
    """By hand, as anybody may; with the level that keeps weights in memory."""
    operation = f"by-hand/{datetime.now(UTC).isoformat()}"
    eventually(
        f"{claim} takes the call",
        lambda: pool.pod.post("sleep", model_name=claim, level=1, operation_id=operation).status == 200,
    )
    pool.wait_asleep(claim)


def _written(gateways: list[Gateway], result: str = "written") -> float:
    return sum(gateway.metric("aibrix_gateway_wake_requests_total", result=result) for gateway in gateways)


@pytest.mark.acceptance("28")
def test_mc28_s2_twenty_requests_to_a_sleeper_are_told_to_come_again_and_wake_it_once(
    pool: Pool, gateways: list[Gateway], gateway: Gateway
):
    _put_to_sleep(pool, "wake-a")
    eventually("every gateway knows", lambda: all(g.models()["wake-a"]["status"] == "sleeping" for g in gateways))
    written, pid = _written(gateways), pool.pod.pid_of("wake-a")
    requests = _wake_requests(pool, "wake-a")
    waking, woken = (pool.told("wake-a", why) for why in ("Waking", "Woken"))

    replies = gateway.burst("wake-a", 20)

    refused = [reply for reply in replies if reply.status != 200]
    assert refused, "the first of them find it asleep"
    for reply in refused:
        assert reply.told == (503, "10", "model wake-a is sleeping; retry shortly")
        assert reply.error[1:] == ("overloaded_error", "service_unavailable", "model")
        assert reply.headers["x-error-no-model-backends"] == "wake-a"
    eventually("a retry is answered", lambda: gateway.chat("wake-a").status == 200, 10.0)
    assert _written(gateways) == written + 1
    pool.wait_active("wake-a")
    pool.wait_told("wake-a", "Waking", waking + 1)
    pool.wait_told("wake-a", "Woken", woken + 1)
    eventually("the request is gone", lambda: names.wake_annotation("wake-a") not in pool.annotations())
    assert pool.pod.pid_of("wake-a") == pid
    (text,) = {text for text in requests() if text}
    assert datetime.now(UTC) >= datetime.fromisoformat(text)
    assert text.endswith("Z")


def _wake_requests(pool: Pool, claim: str):
    """What is returned gives every value of the claim's wake request from now on."""
    path = f"/api/v1/namespaces/{pool.namespace}/pods?labelSelector={names.POOL_LABEL}%3D{pool.name}"
    version = pool.api.get(path)["metadata"]["resourceVersion"]

    def seen() -> list[str | None]:
        values = []
        for body in pool.api.watch(path, version):
            values.append(body["metadata"].get("annotations", {}).get(names.wake_annotation(claim)))
            route = json.loads(body["metadata"]["annotations"][names.route_annotation(claim)])
            if route["state"] == "active" and values[-1] is None:
                return values
        return values

    return seen


def _answers(gateway: Gateway, model: str) -> bool:
    return gateway.chat(model).status == 200


def test_a_claim_that_lets_requests_wait_has_them_answered_when_it_is_awake(pool: Pool, gateways: list[Gateway]):
    config = json.dumps({"profiles": {"default": {"wakeWaitSeconds": 30}}})
    path = f"/apis/model.aibrix.ai/v1alpha1/namespaces/{pool.namespace}/modelclaims/wake-a"
    pool.api.patch(path, {"metadata": {"annotations": {names.CONFIG_ANNOTATION: config}}})
    _put_to_sleep(pool, "wake-a")
    eventually("every gateway knows", lambda: all(g.models()["wake-a"]["status"] == "sleeping" for g in gateways))

    futures = [gateways[number % 3].start_chat("wake-a") for number in range(12)]

    assert {future.result(timeout=60).status for future in futures} == {200}
    pool.api.patch(path, {"metadata": {"annotations": {names.CONFIG_ANNOTATION: None}}})


@pytest.mark.acceptance("29")
def test_mc29_s3_a_sleeper_whose_seat_was_lent_waits_for_room_and_is_served_then(new_pool, gateway: Gateway):
    pool = new_pool("lending")
    for claim in ("lend-a", "lend-b"):
        pool.apply(claim)
    pool.wait_active("lend-a", "lend-b")
    pool.set_policy(sleepAfterSeconds=3600, noWakeReserveWhileAsleep=True, sleepToMakeRoomAfterSeconds=5)
    _put_to_sleep(pool, "lend-a")
    pool.apply("fits-after-release", footprint=str(CARD - 12 * GIB), floor="1Gi")
    pool.wait_active("fits-after-release", within_s=60.0)

    told = (503, "20", "model lend-a is sleeping (WaitingForRoom); retry shortly")
    first = eventually("it waits for room", lambda: _told(gateway, "lend-a", told), 60.0)
    assert first.error[1:] == ("overloaded_error", "service_unavailable", "model")
    eventually("it is woken and answers", partial(_answers, gateway, "lend-a"), 90.0)
    eventually("who went for it is told", lambda: _slept(pool, "lend-b", "fits-after-release") >= 1)


def _slept(pool: Pool, *claims: str) -> int:
    return sum(pool.told(claim, "SleptToMakeRoom") for claim in claims)


def _told(gateway: Gateway, model: str, wanted: tuple[int, str | None, str]):
    """The reply, if it is what is wanted; a retry is a client's, and keeps the model asked for."""
    reply = gateway.chat(model)
    return reply if reply.status != 200 and reply.told == wanted else None


@pytest.mark.acceptance("30")
def test_mc30_s4_a_claim_that_has_room_made_for_it_is_told_to_come_again_and_is_served_then(new_pool, gateway: Gateway):
    pool = new_pool("making-room")
    for claim in ("idle-a", "idle-b"):
        pool.apply(claim)
    pool.wait_active("idle-a", "idle-b")
    pool.set_policy(sleepAfterSeconds=3600, noWakeReserveWhileAsleep=True, sleepToMakeRoomAfterSeconds=5)
    seen: list[tuple[int, str | None, str]] = []
    pool.apply("needs-room", footprint=str(CARD - 12 * GIB), floor="1Gi")

    def look() -> bool:
        reply = gateway.chat("needs-room")
        if reply.status == 503:
            seen.append(reply.told)
        return reply.status == 200

    eventually("it is served", look, 90.0)

    making = (503, "20", "model needs-room is pending (MakingRoom); retry shortly")
    assert making in seen or reason(pool.claim("needs-room"), "Scheduled") == "Placed"
    assert all(told[1] in ("10", "20") for told in seen)
    assert phase(pool.claim("needs-room")) == "Active"
    pool.wait_told("needs-room", "MakingRoom")
    eventually("one of them is told", lambda: _slept(pool, "idle-a", "idle-b") == 1)
    assert pool.told("needs-room", "KVLimitFailed") == 0

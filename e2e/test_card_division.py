"""The KV memory of a card is divided between the engines on it, to the byte."""

from __future__ import annotations

import fcntl
import time

import pytest

from e2e.api import eventually
from e2e.gateway import Gateway
from e2e.pool import AWAKE, CARD, GIB, QWEN3, QWEN25, SAMPLES, Pool, message, phase, record


@pytest.mark.acceptance("13")
def test_mc13_c1_two_idle_samples_share_the_card_exactly(either_samples: Pool):
    pool = either_samples
    for claim in SAMPLES:
        pool.wait(claim, "has half of what is left", lambda c: record(c) == 6 * GIB)
    records = {model: record(pool.claim(claim)) for claim, model in SAMPLES.items()}

    assert sum(records.values()) + 2 * AWAKE == CARD
    assert set(records.values()) == {6_442_450_944}
    eventually("each engine is held to its record", lambda: _limits(pool) == records)


def _limits(pool: Pool):
    return {model: engine["kv_capacity_bytes"] for model, engine in pool.pod.engines().items()}


@pytest.mark.acceptance("14")
def test_mc14_c2_a_claim_without_room_says_what_is_missing_and_is_served_when_there_is_some(
    samples: Pool, gateway: Gateway
):
    name = "needs-eleven"
    samples.apply(name, footprint="10Gi", floor="1Gi")
    refused = samples.wait_unplaced(name, "NoMatchingPods")
    assert phase(refused) == "Pending"
    assert "needs 11.0 GiB on a card" in message(refused, "Scheduled")
    assert f"{samples.pod.name} can offer at most 10.0 GiB" in message(refused, "Scheduled")

    told = (503, "10", f"model {name} is pending (NoMatchingPods); retry shortly")
    eventually("the gateway says so", lambda: gateway.chat(name).told == told)

    samples.delete(QWEN25)
    eventually("its engine has exited", lambda: SAMPLES[QWEN25] not in samples.pod.engines())
    exited_s = time.monotonic()

    samples.wait(name, "is placed", lambda c: c["status"].get("instances"))
    assert time.monotonic() - exited_s < 15.0  # one try every ten seconds, less than two, and what a busy machine takes
    samples.wait_active(name)
    assert samples.pod.chat(samples.route(name)["port"], name).status == 200
    eventually("the gateway serves it", lambda: gateway.chat(name).status == 200)


@pytest.mark.acceptance("15")
def test_mc15_c3_a_limit_that_somebody_raises_is_taken_back(either_samples: Pool):
    pool, pod, model = either_samples, either_samples.pod, SAMPLES[QWEN3]
    held = record(pool.wait(QWEN3, "has its share", lambda c: record(c) == 6 * GIB))
    before = {why: pool.told(QWEN3, why) for why in ("KVLimitNotHeld", "KVLimitSet")}
    raise_it = {"model_name": model, "limit_bytes": held + GIB, "operation_id": f"by-hand/{pod.uid}"}

    first, second = pod.post("kv-limit", **raise_it), pod.post("kv-limit", **raise_it)

    assert (first.status, first.body["applied"]) == (200, True)
    assert (second.status, second.body["applied"]) == (200, False)
    eventually("it is back at its record", lambda: _limits(pool)[model] == held, 60.0)
    pool.wait_active(QWEN3)
    assert record(pool.claim(QWEN3)) == held
    assert pod.chat(pool.route(QWEN3)["port"], model).status == 200
    if pool.told(QWEN3, "KVLimitNotHeld") == before["KVLimitNotHeld"]:
        assert pool.told(QWEN3, "KVLimitSet") == before["KVLimitSet"]  # a division saw it first, and said nothing
        return
    assert pool.told(QWEN3, "KVLimitNotHeld") == before["KVLimitNotHeld"] + 1
    pool.wait_told(QWEN3, "KVLimitSet", before["KVLimitSet"] + 1)


@pytest.mark.acceptance("9.34")
def test_mc9_34_a_neighbour_that_cannot_be_held_to_less_keeps_what_it_has(empty_pool: Pool):
    """Its segment is locked, so the sidecar answers a bare 500: nothing is known, nothing is recorded or started."""
    empty_pool.apply(QWEN3, SAMPLES[QWEN3])
    empty_pool.wait_active(QWEN3)
    alone = CARD - AWAKE
    assert record(empty_pool.claim(QWEN3)) == alone
    segment = empty_pool.pod.folder.segments / f"kvc_{QWEN3}"
    with segment.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        empty_pool.apply(QWEN25, SAMPLES[QWEN25])
        unplaced = empty_pool.wait(QWEN25, "is told", lambda c: "could not be divided" in message(c, "Scheduled"))
        assert "did not take a KV limit" in message(unplaced, "Scheduled")
        assert record(empty_pool.claim(QWEN3)) == alone
        assert empty_pool.pod.engines().keys() == {SAMPLES[QWEN3]}
        assert empty_pool.route(QWEN3)["state"] == "active"

    empty_pool.wait_active(QWEN25, within_s=45.0)
    assert [record(empty_pool.claim(claim)) for claim in SAMPLES] == [6 * GIB, 6 * GIB]

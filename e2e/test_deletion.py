"""A deleted claim leaves nothing behind, and no request in flight is cut before its time is over."""

from __future__ import annotations

import time

import pytest

from e2e.api import eventually
from e2e.pool import SAMPLES, EndlessAnswer, Pool, phase

DRAIN_S = 5.0


def _lives(pool: Pool, model: str) -> bool:
    engine = pool.pod.engines().get(model)
    return engine is not None and engine["phase"] == "active"


@pytest.mark.acceptance("49")
def test_mc49_d_deleted_claims_leave_no_route_and_no_engine(either_samples: Pool):
    pool = either_samples
    pool.delete(*SAMPLES)
    for claim in SAMPLES:
        eventually(f"{claim} is gone", lambda claim=claim: pool.is_gone(claim), 60.0)
    eventually("no engine is left", lambda: not pool.pod.engines(), 60.0)
    assert pool.annotations() == {}


@pytest.mark.acceptance("50")
def test_mc50_a_running_request_is_answered_before_its_engine_stops(empty_pool: Pool):
    name = "eight-seconds"
    empty_pool.apply(name)
    empty_pool.wait_active(name)
    answer = empty_pool.start_chat(name, tokens=800)
    empty_pool.delete(name)
    eventually("the route is gone", lambda: empty_pool.route(name) == {})
    assert not answer.done()  # so the route went first

    def is_answered() -> bool:
        lives, is_gone = _lives(empty_pool, name), empty_pool.is_gone(name)
        if answer.done():
            return True
        assert lives
        assert not is_gone
        return False

    eventually("the answer is complete", is_answered)
    assert answer.result().status == 200
    assert answer.result().body["usage"]["completion_tokens"] == 800
    eventually("the claim is gone", lambda: empty_pool.is_gone(name))
    eventually("the engine is gone", lambda: name not in empty_pool.pod.engines())
    assert empty_pool.told(name, "DrainTimedOut") == 0


@pytest.mark.acceptance("50")
def test_mc50_a_serving_engine_runs_on_for_five_seconds(empty_pool: Pool):
    empty_pool.apply("idle")
    empty_pool.wait_active("idle")
    deleted_s = time.monotonic()
    empty_pool.delete("idle")
    eventually("the route is gone", lambda: empty_pool.route("idle") == {})
    eventually("the engine stops", lambda: not _lives(empty_pool, "idle"))
    assert time.monotonic() - deleted_s >= DRAIN_S


@pytest.mark.acceptance("50")
def test_mc50_an_engine_that_still_starts_is_stopped_at_once(empty_pool: Pool):
    empty_pool.apply("slow-boot")
    eventually("the engine is started", lambda: empty_pool.pod.engines().get("slow-boot"))
    _is_gone_at_once(empty_pool, "slow-boot")


@pytest.mark.acceptance("50")
def test_mc50_a_sleeping_engine_is_stopped_at_once(empty_pool: Pool):
    empty_pool.apply("sleeper")
    empty_pool.wait_active("sleeper")
    slept = empty_pool.pod.post("sleep", model_name="sleeper", level=1, operation_id="by-hand")
    assert (slept.status, slept.body["applied"]) == (200, True)
    empty_pool.wait("sleeper", "is seen asleep", lambda c: phase(c) == "Sleeping")
    eventually("the route says so", lambda: empty_pool.route("sleeper")["state"] == "sleeping")
    _is_gone_at_once(empty_pool, "sleeper")


def _is_gone_at_once(pool: Pool, name: str) -> None:
    deleted_s = time.monotonic()
    pool.delete(name)
    eventually("the claim is gone", lambda: pool.is_gone(name))
    assert time.monotonic() - deleted_s < DRAIN_S
    eventually("the engine is gone", lambda: name not in pool.pod.engines())


@pytest.mark.acceptance("50")
def test_mc50_a_request_that_never_ends_is_cut_after_ninety_seconds(endless_answer: EndlessAnswer):
    pool, name = endless_answer.pool, endless_answer.claim
    eventually("the request is cut", endless_answer.request.done, 120.0)
    assert endless_answer.request.exception() is not None
    # The deletion's time is kept in whole seconds, so up to one of the ninety may have passed before.
    assert endless_answer.ended_s - endless_answer.deleted_s >= 89.0
    eventually("the claim is gone", lambda: pool.is_gone(name))
    eventually("the engine is gone", lambda: not pool.pod.engines())
    eventually("an Event says so", lambda: pool.told(name, "DrainTimedOut"))
    assert endless_answer.ended_s - endless_answer.deleted_s < 100.0

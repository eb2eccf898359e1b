"""What vLLM is told and asked, in which order, when it is put to sleep or woken, and what each odd answer leads to."""

import pytest
from scripted_engine import SILENT

from aibrix_operator.runtime.engines import door as engine_door
from aibrix_operator.runtime.engines import vllm
from aibrix_operator.runtime.engines.door import EngineCallError, EngineStatusError, EngineTimeoutError
from aibrix_operator.runtime.engines.kind import SleepRefusedError, StillServingError, Waking

PAUSE, SLEEP, RESUME, WAKE = (
    "/sleep?level=0&mode=wait",
    "/sleep?level=1&mode=wait",
    "/wake_up?tags=scheduling",
    "/wake_up",
)
STATE = "/is_sleeping"
AWAKE, ASLEEP = (200, '{"is_sleeping": false}'), (200, '{"is_sleeping": true}')
KIND = vllm.Vllm(between_attempts_s=0)
NO_STATE = [
    pytest.param(404, id="no-such-route"),
    pytest.param(500, id="error"),
    pytest.param((200, ""), id="empty"),
    pytest.param((200, "{"), id="cut"),
    pytest.param((200, "[]"), id="no-object"),
    pytest.param((200, "{}"), id="no-word"),
    pytest.param((200, '{"is_sleeping": "false"}'), id="text"),
    pytest.param((200, '{"is_sleeping": null}'), id="null"),
]


SILENCE_S = 0.5
"""A test waits for so long; an engine that answers has so long for it, also on a busy machine."""


@pytest.fixture(autouse=True)
def _short_deadline(monkeypatch):
    monkeypatch.setattr(vllm, "DRAIN_DEADLINE_S", SILENCE_S)


def busy(running, waiting):
    figures = {"num_requests_running": running, "num_requests_waiting": waiting}
    return "".join(f'vllm:{name}{{model_name="m"}} {value}\n' for name, value in figures.items())


async def sleep(engine, level=1):
    await KIND.sleep(engine.door, "m", level)


async def wake(engine):
    await KIND.wake(engine.door, Waking())


async def test_the_engine_first_finishes_its_requests_then_sleeps_then_says_so(engine):
    await sleep(engine)
    assert engine.calls == [f"POST {PAUSE}", f"POST {SLEEP}", f"GET {STATE}"]
    await sleep(engine, level=2)
    assert engine.posts()[2:] == [PAUSE, "/sleep?level=2&mode=wait"]


async def test_an_engine_that_does_not_finish_serves_on(engine):
    engine.answers[PAUSE] = [SILENT]
    with pytest.raises(StillServingError, match=r"^model m is still serving requests, so it is not put to sleep$"):
        await sleep(engine)
    assert engine.calls == [f"POST {PAUSE}", f"POST {RESUME}", f"GET {STATE}"]


async def test_an_engine_that_the_scheduling_tag_leaves_asleep_is_woken_without_a_tag(engine):
    engine.wakes_on = {WAKE}  # as 0.16.0
    engine.answers[PAUSE] = [SILENT]
    engine.sleeps = True
    with pytest.raises(StillServingError):
        await sleep(engine)
    assert engine.posts() == [PAUSE, RESUME, WAKE]
    assert not engine.sleeps


async def test_an_engine_that_knows_no_tags_is_woken_without_one(engine):
    engine.answers, engine.sleeps = {PAUSE: [SILENT], RESUME: [400]}, True
    with pytest.raises(StillServingError):
        await sleep(engine)
    assert engine.posts() == [PAUSE, RESUME, WAKE]


@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_an_engine_whose_pause_fails_is_not_put_to_sleep(engine, status):
    engine.answers[PAUSE] = [status]
    with pytest.raises(SleepRefusedError, match=f"did not say that its requests are over.*answered status {status}"):
        await sleep(engine)
    assert engine.posts() == [PAUSE, RESUME]


@pytest.mark.parametrize(("running", "waiting"), [(1, 0), (0, 1)])
async def test_a_pause_that_is_answered_while_requests_are_there_is_no_pause(engine, running, waiting):
    engine.bodies["/metrics"] = busy(running, waiting)  # 0.16.0 answers level 0 at once, whatever runs
    with pytest.raises(StillServingError):
        await sleep(engine)
    assert engine.posts() == [PAUSE, RESUME]


async def test_metrics_of_an_idle_engine_let_it_sleep(engine):
    engine.bodies["/metrics"] = busy(0, 0)
    await sleep(engine)
    assert engine.posts() == [PAUSE, SLEEP]


@pytest.mark.parametrize("state", [ASLEEP, *NO_STATE])
async def test_a_refused_sleep_that_is_not_proved_undone_is_no_refusal(engine, state):
    engine.answers = {PAUSE: [SILENT], STATE: [state, state]}
    with pytest.raises(EngineCallError):
        await sleep(engine)
    assert SLEEP not in engine.posts()


async def test_a_sleep_that_answers_an_error_is_asked_for_three_times(engine):
    engine.answers[SLEEP] = [500, 500]
    await sleep(engine)
    assert engine.posts() == [PAUSE, *[SLEEP] * 3]


async def test_a_sleep_that_keeps_answering_errors_is_undone(engine):
    engine.answers[SLEEP] = [500, 500, 500]
    with pytest.raises(EngineStatusError, match="answered status 500"):
        await sleep(engine)
    assert engine.posts() == [PAUSE, *[SLEEP] * 3, WAKE]
    assert not engine.sleeps


async def test_a_sleep_that_is_not_answered_is_not_repeated_but_undone(engine, monkeypatch):
    monkeypatch.setattr(engine_door.EngineDoor.post, "__defaults__", (SILENCE_S,))
    engine.answers[SLEEP] = [SILENT]
    with pytest.raises(EngineTimeoutError, match="did not answer within"):
        await sleep(engine)
    assert engine.posts() == [PAUSE, SLEEP, WAKE]


@pytest.mark.parametrize("state", [pytest.param(AWAKE, id="awake"), *NO_STATE])
async def test_a_sleep_that_the_engine_does_not_confirm_is_undone(engine, state):
    engine.answers[STATE] = [state]
    with pytest.raises(EngineCallError):
        await sleep(engine)
    assert engine.posts() == [PAUSE, SLEEP, WAKE]
    assert not engine.sleeps


async def test_the_error_of_a_sleep_stays_the_answer_when_undoing_it_fails_too(engine, caplog):
    engine.answers = {SLEEP: [500, 500, 500], WAKE: [500]}
    with pytest.raises(EngineStatusError, match=r"^/sleep"):
        await sleep(engine)
    assert "engine m fell half asleep and was not brought back" in caplog.text


async def test_a_wake_is_one_call_and_the_engines_word(engine):
    engine.sleeps = True
    await wake(engine)
    assert engine.calls == [f"POST {WAKE}", f"GET {STATE}"]


async def test_an_engine_that_a_wake_leaves_asleep_is_woken_once_more(engine):
    engine.answers[STATE] = [ASLEEP]
    await wake(engine)
    assert engine.posts() == [WAKE, WAKE]


async def test_a_wake_that_stays_asleep_is_an_error(engine):
    engine.answers[STATE] = [ASLEEP, ASLEEP]
    with pytest.raises(EngineCallError, match="still says that it is asleep"):
        await wake(engine)
    assert engine.posts() == [WAKE, WAKE]


@pytest.mark.parametrize("state", NO_STATE)
async def test_a_wake_that_nobody_can_prove_is_an_error(engine, state):
    engine.answers[STATE] = [state]
    with pytest.raises(EngineCallError, match=STATE):
        await wake(engine)


async def test_a_wake_that_the_engine_refuses_is_an_error(engine):
    engine.answers[WAKE] = [500]
    with pytest.raises(EngineStatusError):
        await wake(engine)


@pytest.mark.parametrize(
    ("state", "word"), [(AWAKE, False), (ASLEEP, True), *((param.values[0], None) for param in NO_STATE)], ids=repr
)
async def test_the_engines_word_is_taken_only_as_it_is_meant(engine, state, word):
    engine.answers[STATE] = [state]
    assert await KIND.is_asleep(engine.door) is word


async def test_an_engine_that_does_not_answer_has_no_word(engine, monkeypatch):
    monkeypatch.setattr(vllm, "WORD_DEADLINE_S", 0.05)
    engine.answers[STATE] = [SILENT]
    assert await KIND.is_asleep(engine.door) is None


async def test_ready_is_exactly_200(engine):
    engine.answers["/health"] = [200, 204, 503]
    assert [await engine.door.is_ready() for _ in range(3)] == [True, False, False]


async def test_metrics_that_are_no_page_are_none(engine):
    engine.answers["/metrics"] = [500]
    assert await engine.door.metrics_page() is None
    assert await engine.door.metrics_page() == ""


def test_deadlines_fit_into_the_time_that_a_caller_waits():
    assert (engine_door.HEALTH_DEADLINE_S, engine_door.METRICS_DEADLINE_S, engine_door.CONTROL_DEADLINE_S) == (
        1,
        0.5,
        50,
    )
    assert (vllm.SLEEP_ATTEMPTS, vllm.BETWEEN_ATTEMPTS_S) == (3, 1)

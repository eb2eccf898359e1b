"""What SGLang is told, in which order, when its memory is released and given back. A call too many would end it."""

import json

import pytest
from scripted_engine import SILENT

from aibrix_operator.runtime.engines import door as engine_door
from aibrix_operator.runtime.engines import sglang
from aibrix_operator.runtime.engines.door import EngineCallError, EngineStatusError, EngineTimeoutError
from aibrix_operator.runtime.engines.kind import SleepRefusedError, StillServingError, Waking

INFO, FLUSH, PAUSE, CONTINUE = sglang.INFO, sglang.FLUSH, sglang.PAUSE, sglang.CONTINUE
RELEASE, RESUME, GENERATE = sglang.RELEASE, sglang.RESUME, sglang.GENERATE_ONE
ABLE = {"enable_memory_saver": True, "enable_weights_cpu_backup": True, "speculative_algorithm": None}
KIND = sglang.Sglang()
SILENCE_S = 0.5
"""A test waits for so long; an engine that answers has so long for it, also on a busy machine."""


@pytest.fixture
def engine(engine, monkeypatch):
    monkeypatch.setattr(sglang, "CALL_DEADLINE_S", SILENCE_S)
    engine.bodies[INFO] = json.dumps(ABLE)
    return engine


async def sleep(engine, level=1):
    await KIND.sleep(engine.door, "m", level)


async def test_an_idle_engine_is_paused_looked_at_again_and_released(engine):
    await sleep(engine)
    assert engine.calls == [f"GET {INFO}", *(f"POST {path}" for path in (FLUSH, PAUSE, FLUSH, RELEASE))]
    assert [body for path, body in engine.sent if path in (PAUSE, RELEASE)] == [{"mode": "in_place"}, {}]


async def test_an_engine_that_serves_is_left_alone(engine):
    engine.answers[FLUSH] = [400]
    with pytest.raises(StillServingError, match=r"^model m is still serving requests, so it is not put to sleep$"):
        await sleep(engine)
    assert engine.posts() == [FLUSH]


async def test_a_request_that_came_before_the_pause_goes_on(engine):
    engine.answers[FLUSH] = [200, 400]
    with pytest.raises(StillServingError):
        await sleep(engine)
    assert engine.posts() == [FLUSH, PAUSE, FLUSH, CONTINUE]


@pytest.mark.parametrize("answer", [404, 500, SILENT], ids=repr)
async def test_an_engine_that_is_not_proved_idle_is_left_alone(engine, answer):
    engine.answers[FLUSH] = [answer]
    with pytest.raises((SleepRefusedError, EngineTimeoutError)):
        await sleep(engine)
    assert engine.posts() == [FLUSH]


@pytest.mark.parametrize("answer", [404, 500, SILENT], ids=repr)
async def test_an_engine_whose_door_does_not_close_is_not_released(engine, answer):
    engine.answers[PAUSE] = [answer]
    with pytest.raises(SleepRefusedError, match="model m is not known to be idle, so it is not put to sleep"):
        await sleep(engine)
    assert engine.posts() == [FLUSH, PAUSE, CONTINUE]


async def test_a_refused_sleep_that_is_not_undone_is_no_refusal(engine):
    engine.answers = {FLUSH: [200, 400], CONTINUE: [500]}
    with pytest.raises(EngineStatusError):
        await sleep(engine)


@pytest.mark.parametrize(
    ("info", "missing"),
    [
        ({}, "--enable-memory-saver --enable-weights-cpu-backup"),
        (ABLE | {"enable_weights_cpu_backup": False}, "--enable-weights-cpu-backup"),
        (ABLE | {"enable_memory_saver": None}, "--enable-memory-saver"),
        (ABLE | {"speculative_algorithm": "EAGLE"}, "--enable-draft-weights-cpu-backup"),
    ],
)
async def test_an_engine_whose_weights_would_not_survive_is_not_released(engine, info, missing):
    engine.bodies[INFO] = json.dumps(info)
    with pytest.raises(SleepRefusedError, match=rf"^model m cannot sleep: its engine runs without {missing}$"):
        await sleep(engine)
    assert engine.posts() == []


async def test_an_engine_too_old_to_say_how_it_runs_is_not_paused(engine):
    engine.answers[INFO] = [404]  # its pause would abort what runs
    with pytest.raises(SleepRefusedError, match="model m cannot sleep: its engine does not say how it runs"):
        await sleep(engine)
    assert engine.posts() == []


async def test_a_refused_release_took_nothing_so_nothing_is_given_back(engine):
    engine.answers[RELEASE] = [400]
    with pytest.raises(EngineStatusError):
        await sleep(engine)
    assert engine.posts()[3:] == [RELEASE, CONTINUE]


async def test_an_unanswered_release_is_followed_by_its_undoing(engine, monkeypatch):
    monkeypatch.setattr(engine_door.EngineDoor.post, "__defaults__", (SILENCE_S,))
    engine.answers[RELEASE] = [SILENT]
    with pytest.raises(EngineTimeoutError):
        await sleep(engine)
    assert engine.posts()[3:] == [RELEASE, RESUME, CONTINUE]


async def test_the_error_of_a_release_stays_the_answer_when_undoing_it_fails_too(engine, caplog):
    engine.answers = {RELEASE: [400], CONTINUE: [500]}
    with pytest.raises(EngineStatusError, match=r"^/release_memory_occupation"):
        await sleep(engine)
    assert "engine m fell half asleep and was not brought back" in caplog.text


async def test_a_wake_gives_memory_back_opens_the_door_and_sees_a_token(engine):
    waking = Waking()
    await KIND.wake(engine.door, waking)
    assert engine.sent == [(RESUME, {}), (CONTINUE, {}), (GENERATE, None)]
    assert waking.has_memory


@pytest.mark.parametrize("path", [CONTINUE, GENERATE])
async def test_memory_is_given_back_once_however_often_the_wake_is_tried(engine, path):
    waking = Waking()
    engine.answers[path] = [503]
    with pytest.raises(EngineStatusError):
        await KIND.wake(engine.door, waking)
    await KIND.wake(engine.door, waking)
    assert engine.posts().count(RESUME) == 1
    assert engine.calls[-1] == f"GET {GENERATE}"


async def test_memory_that_was_asked_for_without_an_answer_is_not_asked_for_again(engine, monkeypatch):
    monkeypatch.setattr(engine_door.EngineDoor.post, "__defaults__", (SILENCE_S,))
    waking = Waking()
    engine.answers[RESUME] = [SILENT]
    with pytest.raises(EngineTimeoutError):
        await KIND.wake(engine.door, waking)
    await KIND.wake(engine.door, waking)
    assert engine.posts() == [RESUME, CONTINUE]


async def test_memory_that_was_refused_is_asked_for_again(engine):
    waking = Waking()
    engine.answers[RESUME] = [400]
    with pytest.raises(EngineCallError):
        await KIND.wake(engine.door, waking)
    assert not waking.has_memory
    await KIND.wake(engine.door, waking)
    assert engine.posts() == [RESUME, RESUME, CONTINUE]


async def test_it_has_no_word_of_its_own(engine):
    assert await KIND.is_asleep(engine.door) is None
    assert engine.calls == []

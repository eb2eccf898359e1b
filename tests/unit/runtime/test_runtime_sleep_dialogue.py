"""What vLLM is told, in which order, when it is put to sleep or woken."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from aibrix_operator.runtime.engines import door as engine_door
from aibrix_operator.runtime.engines import vllm
from aibrix_operator.runtime.engines.door import EngineCallError, EngineDoor, EngineStatusError
from aibrix_operator.runtime.engines.kind import StillServingError

PAUSE, SLEEP, RESUME = "/sleep?level=0&mode=wait", "/sleep?level=1", "/wake_up?tags=scheduling"
SILENT = None


class Engine:
    """Answers each call with the next prepared status of its path, 200 when none is left; None never answers."""

    def __init__(self):
        self.calls, self.statuses = [], {}
        self.test_is_over = asyncio.Event()

    async def handle(self, request):
        self.calls.append(f"{request.method} {request.path_qs}")
        prepared = self.statuses.get(request.path_qs, [])
        status = prepared.pop(0) if prepared else 200
        if status is SILENT:
            await self.test_is_over.wait()
        return web.Response(status=status)


@pytest.fixture
async def engine(monkeypatch):
    monkeypatch.setattr(vllm, "DRAIN_DEADLINE_S", 0.05)
    engine = Engine()
    runner = web.ServerRunner(web.Server(engine.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with aiohttp.ClientSession() as session:
        engine.door = EngineDoor(session, "127.0.0.1", site._server.sockets[0].getsockname()[1])
        yield engine
    engine.test_is_over.set()
    await runner.cleanup()


KIND = vllm.Vllm(between_attempts_s=0)


async def test_the_engine_first_finishes_its_requests_then_sleeps(engine):
    await KIND.sleep(engine.door, "m", 1)
    assert engine.calls == [f"POST {PAUSE}", f"POST {SLEEP}"]


async def test_an_engine_that_does_not_finish_serves_on(engine):
    engine.statuses[PAUSE] = [SILENT]
    with pytest.raises(StillServingError, match="model m is still serving requests, so it is not put to sleep"):
        await KIND.sleep(engine.door, "m", 1)
    assert engine.calls == [f"POST {PAUSE}", f"POST {RESUME}"]


async def test_an_engine_without_a_pause_sleeps_at_once(engine):
    engine.statuses[PAUSE] = [404]
    await KIND.sleep(engine.door, "m", 2)
    assert engine.calls == [f"POST {PAUSE}", "POST /sleep?level=2"]


async def test_a_sleep_that_answers_an_error_is_asked_for_three_times(engine):
    engine.statuses[SLEEP] = [500, 500]
    await KIND.sleep(engine.door, "m", 1)
    assert engine.calls == [f"POST {PAUSE}", *[f"POST {SLEEP}"] * 3]
    engine.statuses[SLEEP] = [500, 500, 500]
    with pytest.raises(EngineStatusError, match="answered status 500"):
        await KIND.sleep(engine.door, "m", 1)


async def test_a_sleep_that_is_not_answered_is_not_repeated(engine, monkeypatch):
    monkeypatch.setattr(engine_door.EngineDoor.post, "__defaults__", (0.05,))
    engine.statuses[SLEEP] = [SILENT]
    with pytest.raises(EngineCallError, match="did not answer within"):
        await KIND.sleep(engine.door, "m", 1)
    assert engine.calls == [f"POST {PAUSE}", f"POST {SLEEP}"]


async def test_a_wake_is_one_call(engine):
    await KIND.wake(engine.door)
    assert engine.calls == ["POST /wake_up"]
    engine.statuses["/wake_up"] = [500]
    with pytest.raises(EngineCallError):
        await KIND.wake(engine.door)


async def test_ready_is_exactly_200(engine):
    engine.statuses["/health"] = [200, 204, 503]
    assert [await engine.door.is_ready() for _ in range(3)] == [True, False, False]


async def test_metrics_that_are_no_page_are_none(engine):
    engine.statuses["/metrics"] = [500]
    assert await engine.door.metrics_page() is None
    assert await engine.door.metrics_page() == ""


def test_deadlines_are_the_contracts():
    assert (engine_door.HEALTH_DEADLINE_S, engine_door.METRICS_DEADLINE_S, engine_door.CONTROL_DEADLINE_S) == (
        1,
        0.5,
        50,
    )
    assert (vllm.SLEEP_ATTEMPTS, vllm.BETWEEN_ATTEMPTS_S) == (3, 1)
    assert vllm.DRAIN_DEADLINE_S == 1

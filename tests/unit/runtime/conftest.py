"""Fixtures of the sidecar's tests."""

import aiohttp
import pytest
from aiohttp import web
from fleet_bench import Bench
from scripted_engine import ScriptedEngine

from aibrix_operator.runtime.engines.door import EngineDoor


@pytest.fixture
async def make_bench(tmp_path):
    """Builds fleets over real processes; all of them end with the test."""
    benches = []
    async with aiohttp.ClientSession() as session:

        def make(**settings):
            benches.append(Bench(tmp_path, session, **settings))
            return benches[-1]

        yield make
        for bench in benches:
            bench.end()


@pytest.fixture
def bench(make_bench):
    return make_bench()


@pytest.fixture
async def engine():
    """A scripted engine with a door to it."""
    engine = ScriptedEngine()
    runner = web.ServerRunner(web.Server(engine.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with aiohttp.ClientSession() as session:
        engine.door = EngineDoor(session, "127.0.0.1", site._server.sockets[0].getsockname()[1])
        yield engine
    engine.test_is_over.set()
    await runner.cleanup()

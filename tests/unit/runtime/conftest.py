"""Fixtures of the sidecar's tests."""

import aiohttp
import pytest
from fleet_bench import Bench


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

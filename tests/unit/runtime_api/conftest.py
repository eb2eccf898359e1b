"""Fixtures of the client's tests."""

import aiohttp
import pytest
from raw_server import serving

from aibrix_operator.runtime_api.client import RuntimeClient


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self):
        self.now_s = 1_000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def client(session, clock):
    return RuntimeClient(session, clock=clock)


@pytest.fixture
async def server():
    async with serving() as raw:
        yield raw

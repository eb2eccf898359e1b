"""Fixtures of the engine tests."""

import json

import aiohttp
import pytest
from engine_process import Launcher


@pytest.fixture
async def engines(tmp_path):
    """Starts simulated engines; all are ended with the test."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        launcher = Launcher(tmp_path, session)
        yield launcher
        launcher.end()


@pytest.fixture
def profiles(tmp_path):
    """Writes a profile file: the environment for ``Launcher.start`` comes back."""

    def write(**entries):
        path = tmp_path / "profiles.json"
        path.write_text(json.dumps(entries))
        return {"AIBRIX_SIM_PROFILES": str(path)}

    return write

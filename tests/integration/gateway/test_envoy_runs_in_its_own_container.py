"""Envoy and our process start, end and come again each by itself, and share a folder of sockets."""

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from gateway_engine import echo, running_engine
from gateway_envoy import settings_in, until

from aibrix_operator.gateway.envoy import config, process, running
from aibrix_operator.gateway.envoy.process import EnvoyError, ProcessOptions

CHAT = {"model": "m", "messages": []}
OURS = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from gateway_envoy import forward, settings_in
from aibrix_operator.gateway.envoy import running

async def main(folder, engine):
    class Exchange:
        def answer(self, question):
            return forward(engine)

    async with running.run(settings_in(folder), Exchange(), print) as gateway:
        print("ready", flush=True)
        await gateway.ended()

asyncio.run(main(Path(sys.argv[1]), sys.argv[3]))
"""


class Silent:
    """An exchange that nobody asks."""


class Seen:
    """An admin interface whose answers are kept."""

    def __init__(self, admin):
        self.admin = admin
        self.answers = []

    async def is_ready(self):
        self.answers.append(await self.admin.is_ready())
        return self.answers[-1]


@contextlib.asynccontextmanager
async def ours(folder, engine):
    """Our process, on the sockets in ``folder``; it is killed at the end, which leaves them lying there."""
    tests = str(Path(__file__).parents[2])
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OURS, str(folder), tests, engine, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await child.stdout.readline() == b"ready\n"
        yield
    finally:
        child.send_signal(signal.SIGKILL)
        await child.communicate()


async def test_our_process_comes_again_after_a_kill_and_envoy_finds_it(tmp_path):
    settings = settings_in(tmp_path)
    config.write_config(settings, tmp_path / "theirs.json")
    envoy = process.launch(tmp_path / "theirs.json", ProcessOptions(concurrency=1, log=tmp_path / "log"))
    url = f"http://{settings.listen}/v1/chat/completions"

    async def status(client):
        async with client.post(url, json=CHAT) as answer:
            return answer.status

    async def comes_to(client, wanted):
        async with asyncio.timeout(20):
            while await status(client) != wanted:  # noqa: ASYNC110 - Envoy's, not ours
                await asyncio.sleep(0.02)

    try:
        async with running_engine() as engine, aiohttp.ClientSession() as client:
            engine.reply = echo
            async with ours(tmp_path, engine.address):
                await process.until_ready(envoy, running.Admin(settings.admin), ProcessOptions())
                await comes_to(client, 200)
            assert await status(client) == 503
            assert (tmp_path / "questions").is_socket()
            async with ours(tmp_path, engine.address):
                await comes_to(client, 200)
    finally:
        await envoy.terminate()


async def test_envoy_comes_again_after_a_kill_on_the_sockets_that_it_left(tmp_path):
    settings = settings_in(tmp_path)
    config.write_config(settings, tmp_path / "theirs.json")
    for end in (signal.SIGKILL, signal.SIGTERM):
        envoy = process.launch(tmp_path / "theirs.json", ProcessOptions(concurrency=1, log=tmp_path / "log"))
        try:
            await process.until_ready(envoy, running.Admin(settings.admin), ProcessOptions())
        finally:
            os.kill(envoy.pid, end)
            await envoy.ended()


async def test_the_gateway_ends_when_an_envoy_in_its_own_container_is_silent(tmp_path):
    """And not before that has been ready once: the two containers start in any order."""
    settings = settings_in(tmp_path)
    async with running.run(settings, Silent(), print) as gateway:
        seen = Seen(gateway.admin)
        watching = asyncio.create_task(replace(gateway, admin=seen).ended())
        await until(lambda: False in seen.answers)
        config.write_config(settings, tmp_path / "theirs.json")
        other = process.launch(tmp_path / "theirs.json", ProcessOptions(concurrency=1, log=tmp_path / "log"))
        try:
            await until(lambda: True in seen.answers)
        finally:
            await other.terminate()
        with pytest.raises(EnvoyError, match=r"has not answered at unix:.*/admin for 3 s"):
            await asyncio.wait_for(watching, 20)

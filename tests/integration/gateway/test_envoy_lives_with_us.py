"""Envoy's process: found, started, watched, and never left alone."""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from gateway_envoy import forward, settings_in, stage, until

from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.envoy import config, process, running
from aibrix_operator.gateway.envoy.process import EnvoyError, ProcessOptions

CHILD = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from gateway_envoy import forward, settings_in
from aibrix_operator.gateway.envoy import running
from aibrix_operator.gateway.envoy.process import ProcessOptions

async def main(folder):
    class Exchange:
        def answer(self, question):
            return forward("127.0.0.1:1")

    options = ProcessOptions(concurrency=1, log=folder / "log")
    settings = settings_in(folder)
    async with running.run(settings, Exchange(), print, config=folder / "envoy.json", options=options) as gateway:
        print(gateway.process.pid, flush=True)
        await gateway.ended()

asyncio.run(main(Path(sys.argv[1])))
"""


def is_running(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_envoy_ends_when_we_do_however_we_end(tmp_path, end):
    tests = str(Path(__file__).parents[2])
    folder = tmp_path / "s"
    folder.mkdir()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(folder), tests, stdout=asyncio.subprocess.PIPE
    )
    try:
        envoy = int(await child.stdout.readline())
        assert is_running(envoy)
    finally:
        child.send_signal(end)
        await child.communicate()
    await until(lambda: not is_running(envoy))


async def test_we_are_told_when_envoy_ends():
    async with stage(lambda _: forward("127.0.0.1:1")) as gateway:
        watching = asyncio.create_task(gateway.gateway.ended())
        os.kill(gateway.gateway.process.pid, signal.SIGKILL)
        with pytest.raises(EnvoyError, match="ended with status -9"):
            await watching


async def test_an_envoy_that_does_not_start_is_told_with_its_log(tmp_path):
    settings = replace(settings_in(tmp_path), admin=Address(path=str(tmp_path / "no" / "such")))
    options = ProcessOptions(log=tmp_path / "envoy.log")
    with pytest.raises(EnvoyError, match=r"ended with status 1 before it was ready; its log is .*envoy\.log"):
        async with running.run(settings, None, None, config=tmp_path / "c.json", options=options):
            pass
    assert "no/such" in (tmp_path / "envoy.log").read_text()


async def test_an_envoy_of_its_own_container_needs_its_configuration_alone(tmp_path):
    settings = settings_in(tmp_path)
    entries = []

    class Exchange:
        def answer(self, question):
            return forward("127.0.0.1:1", lease="l")

    async with running.run(settings, Exchange(), entries.append) as gateway:
        assert gateway.process is None
        config.write_config(settings, tmp_path / "theirs.json")
        other = process.launch(tmp_path / "theirs.json", ProcessOptions(concurrency=1, log=tmp_path / "log"))
        try:
            await process.until_ready(other, gateway.admin, ProcessOptions())
            assert await gateway.admin.lost_entries() == 0
        finally:
            await other.terminate()
        assert other.has_ended


def test_a_named_program_that_is_none_is_refused(tmp_path):
    with pytest.raises(EnvoyError, match="is no program"):
        process.find(tmp_path / "envoy")


def test_a_program_on_path_comes_before_the_wheels_and_the_wheels_script_is_none(tmp_path, monkeypatch):
    wheel = process.find()
    for name, content in (("script", "#!/usr/bin/python\n"), ("program", "\x7fELF")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "envoy").write_text(content)
        (folder / "envoy").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        assert process.find() == (wheel if name == "script" else folder / "envoy")


def test_without_any_envoy_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvoyError, match="pip install"):
        process.find()

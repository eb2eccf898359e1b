"""Simulated engines as processes of their own, started the way a runtime agent starts them."""

import asyncio
import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

import aibrix_operator.sim
from aibrix_operator.sandbox.control_plane import free_port

STANDINS = Path(aibrix_operator.sim.__file__).parent / "standins"
VLLM = "vllm.entrypoints.openai.api_server"
SGLANG = "sglang.launch_server"
DEADLINE_S = 20.0
POLL_S = 0.01


async def until(condition, what):
    """Wait until ``condition`` (plain or awaitable) holds, polling real processes."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        await asyncio.sleep(POLL_S)


@dataclass
class Engine:
    """One engine: its process, its log and its URL."""

    process: subprocess.Popen
    port: int
    log: Path
    segment: Path
    session: aiohttp.ClientSession = field(repr=False)

    def request(self, method, path, **kwargs):
        return self.session.request(method, f"http://127.0.0.1:{self.port}{path}", **kwargs)

    async def get(self, path):
        async with self.request("GET", path) as answer:
            return answer.status, await _body(answer)

    async def post(self, path, json=None):
        async with self.request("POST", path, json=json) as answer:
            return answer.status, await _body(answer)

    async def chat(self, text="hi", **body):
        return await self.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 8, **body}
        )

    async def is_up(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            status, _ = await self.get("/health")
        except aiohttp.ClientConnectionError:
            return False
        return status == 200

    async def metric(self, name, **labels):
        """The sum over the samples of that name that have these labels."""
        _, page = await self.get("/metrics")
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in page.splitlines()
            if line.split("{")[0] == name and all(label in line for label in wanted)
        )

    def command(self):
        """The command line that the process has now."""
        return Path(f"/proc/{self.process.pid}/cmdline").read_text().rstrip("\0").split("\0")

    def read_segment(self):
        """Limit, used and prealloc in bytes."""
        return struct.unpack("<3q", self.segment.read_bytes())

    def write_limit(self, limit_bytes):
        with self.segment.open("r+b") as file:
            file.write(struct.pack("<q", limit_bytes))

    async def exit_code(self):
        await until(lambda: self.process.poll() is not None, "the engine exits")
        return self.process.returncode


async def _body(answer):
    return await answer.json() if answer.content_type == "application/json" else await answer.text()


class Launcher:
    """Starts engines in ``folder`` and ends them all when the test is over."""

    def __init__(self, folder, session):
        self.folder = folder
        self._session = session
        self._processes = []

    def start(self, name, *flags, module=VLLM, cards=None, environ=None):
        """Start an engine; it may not be up yet, or never come up."""
        port = free_port()
        model = "--model" if module == VLLM else "--model-path"
        where = [model, "m", "--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
        log = self.folder / f"{name}-{port}.log"
        inherited = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        settings = {
            "PYTHONPATH": str(STANDINS),
            "AIBRIX_SIM_PYTHON": sys.executable,
            "AIBRIX_KV_SEGMENT_DIR": str(self.folder),
            "KVCACHED_IPC_NAME": f"kvc_{name}",
            "VLLM_SERVER_DEV_MODE": "1",
            **({"AIBRIX_SIM_CARDS": str(cards)} if cards else {}),
            **(environ or {}),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *where, *flags],
                env={**inherited, **settings},
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return Engine(process, port, log, self.folder / f"kvc_{name}", self._session)

    async def up(self, name, *flags, **kwargs):
        """Start an engine and wait until it serves."""
        engine = self.start(name, *flags, **kwargs)
        await until(engine.is_up, f"{name} serves")
        return engine

    def end(self):
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):  # it may have died on purpose
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

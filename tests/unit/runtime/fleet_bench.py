"""A fleet on a bench: real processes of the fake engine, a clock that tests move, ticks that tests make."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aibrix_operator.runtime import procfs
from aibrix_operator.runtime.controls import Controls
from aibrix_operator.runtime.engines.catalog import Catalog
from aibrix_operator.runtime.engines.sglang import Sglang
from aibrix_operator.runtime.engines.vllm import METRICS
from aibrix_operator.runtime.fleet import Fleet
from aibrix_operator.runtime.nvml import GpuReading
from aibrix_operator.runtime.observation import Observation
from aibrix_operator.runtime.settings import RuntimeSettings
from aibrix_operator.runtime.supervisor import Supervisor
from aibrix_operator.runtime_api.wire import ActivateRequest, DeactivateRequest, EngineConfig
from aibrix_operator.sandbox.control_plane import free_port

ENGINE = Path(__file__).with_name("fake_engine.py")
DEADLINE_S = 20.0
POLL_S = 0.01


class FakeKind:
    """Starts the fake engine; behaviours are given as flags. ``on_sleep`` and ``on_wake`` stand for its dialogue.

    ``word`` is what it says of being asleep, when asked.
    """

    metric_names = METRICS
    can_sleep = True

    def __init__(self):
        self.on_sleep = self.on_wake = _nothing
        self.word = None
        self.wakings = []

    def command(self, launch):
        return [launch.python, "-S", "-E", str(ENGINE), str(launch.port), *launch.args]

    def check_args(self, args, visible_gpus):
        pass

    async def sleep(self, door, model_name, level):
        await self.on_sleep()

    async def wake(self, door, waking):
        self.wakings.append(waking)
        await self.on_wake()

    async def is_asleep(self, door):
        return self.word


async def _nothing():
    pass


@dataclass
class FakeNvml:
    """Hands out prepared readings, the last one for ever."""

    readings: list = field(default_factory=lambda: [GpuReading()])
    has_seen_a_gpu: bool = False

    def read(self):
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


class Bench:
    """One fleet; ``again()`` is the next sidecar over the same registry."""

    def __init__(self, directory, session, **settings):
        self.directory, self.session = directory, session
        self.settings = RuntimeSettings(
            **{
                "engine_host": "127.0.0.1",
                "engine_python": sys.executable,
                "engine_registry_path": directory / "run" / "engines.json",
                "weight_cache_dir": directory / "cache",
                "kv_segment_dir": directory,
                "engine_stop_grace_seconds": 30,
            }
            | settings
        )
        self.now = datetime(2026, 11, 29, 8, 0, tzinfo=UTC)
        self.kind = FakeKind()
        self.started = []
        self.again()

    def again(self):
        kinds = Catalog({"vllm": self.kind, "sglang": Sglang()})
        self.fleet = Fleet(self.settings, self.session, clock=lambda: self.now, kinds=kinds)
        self.fleet.nvml = FakeNvml()
        self.controls, self.supervisor = Controls(self.fleet), Supervisor(self.fleet)
        self.observation = Observation(self.fleet)

    @property
    def record(self):
        return self.fleet.records.get("m")

    async def start(self, *behaviour):
        config = EngineConfig(args=dict.fromkeys(behaviour, ""))
        request = ActivateRequest(model_name="m", artifact_url="hf://m", engine_config=config, port=free_port())
        answer = await self.controls.activate(request)
        self.started.append(self.record.process)
        return answer

    async def start_and_serve(self, *behaviour):
        await self.start(*behaviour)
        await self.until(lambda: answers(self.record.port), "the engine listens")
        await self.supervisor.tick()
        return self.record

    async def stop(self):
        await self.controls.deactivate(DeactivateRequest(model_name="m"))

    async def tick(self, after_s=1.0):
        """Let time pass, look once, and keep account of what was started."""
        self.now += timedelta(seconds=after_s)
        await self.supervisor.tick()
        if self.record is not None and self.record.process is not None:
            self.started.append(self.record.process)

    async def until(self, condition, what):
        deadline = time.monotonic() + DEADLINE_S
        while not (value := condition()):
            assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
            await asyncio.sleep(POLL_S)
        return value

    async def until_dead(self, pid):
        await self.until(lambda: not lives(pid), f"process {pid} is gone")

    def end(self):
        """Kill whatever this bench started, and collect it."""
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, 0)


def lives(pid):
    stat = procfs.read(pid)
    return stat is not None and stat.is_alive


def members(process):
    """Living processes of an engine's group."""
    return [stat.pid for stat in procfs.everyone() if stat.group == process.pid and stat.is_alive]


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

"""Who is measured, and how each is started. Peers come from a virtual environment of their own (``--peers``)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from aibrix_operator.sandbox.control_plane import free_port, free_ports

ENGINES = 4
KEY = "sk-b3nch-0nly-0n-l00pback-4ddress"
"""The bearer key of every request. Only litellm asks for one."""
_START_S = 90.0


class StartError(Exception):
    """A contender did not come up."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a contender runs."""

    folder: Path
    port: int
    engines: Sequence[int]
    """Ports of the engine."""
    peers: Path
    """``bin`` of the peers' virtual environment."""

    def urls(self) -> list[str]:
        """The engine's addresses, without a path."""
        return [f"http://127.0.0.1:{port}" for port in self.engines]


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of the table."""

    name: str
    command: Callable[[Place], list[str]] | None
    """None: the engine itself."""
    strategy: str | None = None
    user: str | None = None
    needs: str | None = None
    """A program of the peers' environment, without which it is left out."""


def _ours(*options: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        module = [sys.executable, "-m", "bench.gateway.ours", "--port", str(place.port)]
        return [*module, *options, *(str(port) for port in place.engines)]

    return command


def _vllm_router(policy: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        own = ["--host", "127.0.0.1", "--port", str(place.port), "--prometheus-port", str(free_port())]
        return [str(place.peers / "vllm-router"), *own, "--policy", policy, "--worker-urls", *place.urls()]

    return command


def _sglang_router(place: Place) -> list[str]:
    own = ["--host", "127.0.0.1", "--port", str(place.port), "--prometheus-port", str(free_port())]
    launch = [str(place.peers / "python"), "-m", "sglang_router.launch_router"]
    return [*launch, *own, "--policy", "round_robin", "--worker-urls", *place.urls()]


def _litellm(place: Place) -> list[str]:
    models = [
        {"model_name": "m", "litellm_params": {"model": "openai/m", "api_base": f"{url}/v1", "api_key": "none"}}
        for url in place.urls()
    ]
    config = place.folder / "litellm.yaml"
    config.write_text(yaml.safe_dump({"model_list": models}))
    return [
        "env",
        f"LITELLM_MASTER_KEY={KEY}",  # it starts with a key only
        str(place.peers / "litellm"),
        "--config",
        str(config),
        "--host",
        "127.0.0.1",
        "--port",
        str(place.port),
    ]


CONTENDERS = (
    Contender("engine alone", None),
    Contender("Envoy alone", _ours("--envoy-alone")),
    Contender("ours, least-request", _ours(), strategy="least-request"),
    Contender("ours, prefix-cache", _ours(), strategy="prefix-cache"),
    Contender("ours, limits in memory", _ours("--limits", "memory"), strategy="least-request", user="bench"),
    Contender("ours, limits in Redis", _ours("--limits", "redis"), strategy="least-request", user="bench"),
    Contender("vllm-router, round_robin", _vllm_router("round_robin"), needs="vllm-router"),
    Contender("vllm-router, cache_aware", _vllm_router("cache_aware"), needs="vllm-router"),
    Contender("sglang-router, round_robin", _sglang_router, needs="sglang-router"),
    Contender("litellm", _litellm, needs="litellm"),
)


@contextlib.contextmanager
def engine(count: int = ENGINES) -> Iterator[list[int]]:
    """The engine's ports, while it runs."""
    ports = free_ports(count)
    command = [sys.executable, "-m", "bench.gateway.engine", *(str(port) for port in ports)]
    with _process(command, Path(os.devnull)) as started:
        _await_answer(started, f"http://127.0.0.1:{ports[-1]}/health")
        yield ports


@contextlib.contextmanager
def running(contender: Contender, place: Place) -> Iterator[tuple[str, int | None]]:
    """(address to load, process or None for the engine itself), ready to be asked. StartError when it is not."""
    if contender.command is None:
        yield f"http://127.0.0.1:{place.engines[0]}", None
        return
    log = place.folder / f"{contender.name.replace(' ', '-').replace(',', '')}.log"
    with _process(contender.command(place), log) as started:
        _await_answer(started, f"http://127.0.0.1:{place.port}/v1/models", log)
        yield f"http://127.0.0.1:{place.port}", started.pid


def cpu_seconds(root: int) -> float:
    """User and system time that process ``root`` and those below it have used; children that ended are left out."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended while we looked
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = int(fields[11]) + int(fields[12])

    def is_ours(pid: int) -> bool:
        return pid == root or (pid in parents and is_ours(parents[pid]))

    return sum(used for pid, used in ticks.items() if is_ours(pid)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        started = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def _await_answer(started: subprocess.Popen[bytes], url: str, log: Path | None = None) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if started.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except urllib.error.HTTPError:
            return  # it wants a key, which shows that it is up
        except OSError:
            time.sleep(0.1)
    tail = log.read_text(errors="replace")[-2000:] if log is not None else ""
    raise StartError(f"no answer from {url} within {_START_S:.0f} s; it said: {tail}")

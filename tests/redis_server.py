"""A real Redis for tests: one server a test session (and xdist worker), on a free loopback port, without persistence.

``redis-server`` is the one on PATH or, else, the one beside the interpreter that runs the tests.
"""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aibrix_operator.sandbox.control_plane import free_port

PR_SET_PDEATHSIG = 1
STARTS_WITHIN_S = 20.0


def find_program() -> str:
    """The path of ``redis-server``."""
    beside = Path(sys.executable).parent / "redis-server"
    found = shutil.which("redis-server") or (str(beside) if beside.exists() else None)
    if found is None:
        raise FileNotFoundError("redis-server is neither on PATH nor beside the interpreter: `make setup` installs it")
    return found


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class RedisServer:
    """A server that can be stopped, hung and started again, empty, on the same port."""

    directory: Path
    arguments: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it takes connections. Another process may take the free port first: then another is tried."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(5):
            self._process = subprocess.Popen(
                [find_program(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                 "--dir", str(self.directory), "--logfile", str(self.directory / "redis.log"), *self.arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                preexec_fn=_die_with_parent,
            )  # fmt: skip
            if self._answers():
                return
            self.port = free_port()
        raise RuntimeError(f"redis-server did not start, see {self.directory / 'redis.log'}")

    def _answers(self) -> bool:
        assert self._process is not None
        deadline_s = time.monotonic() + STARTS_WITHIN_S
        while self._process.poll() is None and time.monotonic() < deadline_s:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as asking:
                    asking.sendall(b"PING\r\n")
                    if asking.recv(64).startswith(b"+PONG"):
                        return True
            except OSError:
                time.sleep(0.01)  # a real process is polled
        self.stop()
        return False

    def stop(self) -> None:
        """End it at once, by its own process id; what it held is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        """It keeps its connections and answers nothing until ``go_on``."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Shared by all tests of a session: each uses keys of its own, or empties it first."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """For a test that stops or hangs its server."""
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.stop()

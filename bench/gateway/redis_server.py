"""A Redis for benchmarks: the server beside the interpreter, on a free loopback port, without persistence."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from aibrix_operator.sandbox.control_plane import free_port

_STARTS_WITHIN_S = 10.0
_SET_PDEATHSIG = 1


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Its URL, once it answers. It ends with this process, however that ends."""
    port = free_port()
    program = str(Path(sys.executable).parent / "redis-server")
    words = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, preexec_fn=_end_with_parent)
    try:
        url = f"redis://127.0.0.1:{port}/0"
        deadline_s = time.monotonic() + _STARTS_WITHIN_S
        while not _answers(url):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{program} did not answer at {url} within {_STARTS_WITHIN_S:.0f} s")
            time.sleep(0.01)  # a real process is polled
        yield url
    finally:
        server.kill()
        server.wait()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as asking:
            return bool(asking.ping())
    except redis.ConnectionError:
        return False

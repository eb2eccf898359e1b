"""Start, find again and end the sandbox's processes.

A process is named by its number *and* the start time the kernel gives it, because numbers are used again: whatever is
signalled here was started by a sandbox. Nothing looks a process up by its name. Linux only (procfs, pidfd).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
# Own children by pid, so that their exit status is collected and no zombie keeps a number. Daemons stay in it.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for good: ``start_ticks`` is procfs's start time in clock ticks since boot."""

    pid: int
    start_ticks: int


def start(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    dies_with_parent: bool,
) -> int:
    """Start ``command`` in a session of its own, its output appended to ``log``; returns its pid.

    With ``dies_with_parent`` the kernel kills it when the calling *thread* ends; without, it outlives us as a daemon.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment) if environment is not None else None,
            start_new_session=True,
            preexec_fn=kill_with_parent() if dies_with_parent else None,
        )
    _children[process.pid] = process
    return process.pid


def kill_with_parent() -> Callable[[], None]:
    """A ``preexec_fn`` that ties the new process's life to the thread that starts it."""
    parent = os.getpid()

    def ask_kernel() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the call above; no signal would come any more
            os._exit(1)

    return ask_kernel


def identify(pid: int) -> ProcessId | None:
    """The full name of a process that runs now; None when there is none, or it is a zombie."""
    try:
        state, start_ticks = _state_and_start(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else ProcessId(pid, start_ticks)


def is_alive(process: ProcessId) -> bool:
    return identify(process.pid) == process


def signal_process(process: ProcessId, number: signal.Signals) -> None:
    """Send a signal to exactly this process; nothing happens when it is gone."""
    with contextlib.suppress(ProcessLookupError):  # gone already, which is what the caller wants in the end
        handle = os.pidfd_open(process.pid)
        try:
            if is_alive(process):  # the handle pins the number, so the check cannot be outrun
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def wait_gone(process: ProcessId, deadline: float) -> bool:
    """Wait until ``process`` has ended or ``time.monotonic()`` reaches ``deadline``; True when it has ended."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        # A zombie counts as running here: of a process with threads, the first may be one while others still end. The
        # handle becomes readable when the last has, and only then can the exit status be collected.
        if _state_and_start(process.pid)[1] != process.start_ticks:
            return True
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        return bool(ended.poll(max(0.0, deadline - time.monotonic()) * 1000))
    except (FileNotFoundError, ProcessLookupError):
        return True
    finally:
        os.close(handle)


def end(process: ProcessId, grace_s: float) -> None:
    """SIGTERM, then SIGKILL after ``grace_s``. Returns when the process has ended."""
    signal_process(process, signal.SIGTERM)
    if not wait_gone(process, time.monotonic() + grace_s):
        signal_process(process, signal.SIGKILL)
        wait_gone(process, time.monotonic() + 10)
    reap(process.pid)


def reap(pid: int) -> None:
    """Collect the exit status of an ended process, when it is our own child; else its parent or init does."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]


def session_memory_bytes(leader: ProcessId) -> int:
    """What the processes of ``leader``'s session hold by themselves, in bytes; 0 when there are none.

    File pages are left out: the control plane's programs share theirs.
    """
    total = 0
    for pid in _all_pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # gone meanwhile: it holds nothing
            if int(_stat_fields(pid)[3]) == leader.pid:
                total += _anonymous_bytes(pid)
    return total


def find_marked(mark: bytes) -> list[ProcessId]:
    """The live processes whose environment had the entry ``mark`` (``NAME=value``) when they were started.

    Other users' processes cannot be read, and are not ours.
    """
    found: list[ProcessId] = []
    for pid in _all_pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # gone meanwhile, or somebody else's
            continue
        if mark in environment.split(b"\0") and (process := identify(pid)):
            found.append(process)
    return found


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _state_and_start(pid: int) -> tuple[str, int]:
    """State letter and start time (fields 3 and 22 of procfs's stat); errors as those of ``_stat_fields``."""
    fields = _stat_fields(pid)
    return fields[0], int(fields[19])


def _stat_fields(pid: int) -> list[str]:
    """procfs's stat from field 3 (the state) on. FileNotFoundError or ProcessLookupError when the process is gone."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text.rpartition(")")[2].split()  # the command name before may hold blanks and brackets


def _anonymous_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next((line.split()[1] for line in text.splitlines() if line.startswith("RssAnon:")), "0")
    return int(kilobytes) * 1024

"""Starts engine processes, sees whether they live, and signals their groups. Knows nothing of HTTP or of phases.

An engine leads a session of its own, so that it outlives the sidecar and one signal reaches all its workers. A number
is never signalled on its own evidence: after a container restart it may belong to anyone.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from aibrix_operator.runtime import procfs
from aibrix_operator.runtime.records import EngineProcess

IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that this interpreter ignores and a new process should not."""


class Life(StrEnum):
    """How much of an engine's process group lives."""

    RUNNING = "running"
    REMAINS = "remains"
    GONE = "gone"


class LaunchError(Exception):
    """The process could not be started. Handled by whoever asked for it."""


class Launcher:
    """The processes of one sidecar. Its calls take at most a few milliseconds."""

    def __init__(self, proc: Path = procfs.PROC) -> None:
        self._proc = proc
        self._children: set[int] = set()

    def launch(self, argv: list[str], environment: Mapping[str, str]) -> EngineProcess:
        """Start ``argv`` as the leader of a new session. Its output goes where ours goes."""
        try:
            pid = os.posix_spawnp(
                argv[0],
                argv,
                environment,
                file_actions=((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),),
                setsid=True,
                setsigdef=IGNORED_BY_PYTHON,
                setsigmask=(),
            )
        except (OSError, ValueError) as error:
            raise LaunchError(f"cannot start {argv[0]}: {error}") from error
        self._children.add(pid)
        stat = procfs.read(pid, self._proc)
        if stat is None:
            raise LaunchError(f"{argv[0]} started as process {pid}, which procfs does not show")
        return EngineProcess(pid, stat.start_ticks)

    def is_running(self, process: EngineProcess | None) -> bool:
        """Whether the first process runs: one small read, for the many looks that need no more."""
        if process is None:
            return False
        leader = procfs.read(process.pid, self._proc)
        return leader is not None and leader.is_alive and leader.start_ticks == process.start_ticks

    def look(self, process: EngineProcess | None) -> Life:
        """What is left of ``process`` and its group. None is an engine that has no process."""
        if process is None:
            return Life.GONE
        self._reap(process.pid)
        leader = procfs.read(process.pid, self._proc)
        if leader is not None and leader.start_ticks != process.start_ticks:
            # Linux gives no number away while a group bears it, so the old group is gone with its leader.
            return Life.GONE
        if leader is not None and leader.is_alive:
            return Life.RUNNING
        return Life.REMAINS if self._has_remains(process) else Life.GONE

    def signal_group(self, process: EngineProcess | None, number: signal.Signals) -> None:
        """Signal the whole group, if it is provably the engine's. A group that is gone is fine; OSError is not."""
        if process is None or self.look(process) is Life.GONE:
            return
        with contextlib.suppress(ProcessLookupError):  # it ended between the look and the signal
            os.killpg(process.pid, number)

    def _reap(self, pid: int) -> None:
        """Collect a dead child of ours. Adopted engines are no children; the container's init collects those."""
        if pid not in self._children:
            return
        try:
            collected, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            collected = pid
        if collected == pid:
            self._children.discard(pid)

    def _has_remains(self, process: EngineProcess) -> bool:
        """Whether members of the group outlived the leader.

        Without a leader to compare start times with, three facts stand in: the engine started after this container's
        init did, the members are in the leader's own session, and none is older than the leader.
        """
        started = int(process.start_ticks) if process.start_ticks.isdigit() else -1
        init = procfs.read(procfs.INIT_PID, self._proc)
        if started < 0 or (init is not None and started < int(init.start_ticks)):
            return False
        return any(
            stat.is_alive
            and stat.group == process.pid
            and stat.session == process.pid
            and int(stat.start_ticks) >= started
            for stat in procfs.everyone(self._proc)
        )

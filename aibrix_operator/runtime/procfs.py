"""What Linux tells of processes under ``/proc``: who lives since when, in which group, below whom. Reads only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
DEAD_STATES = frozenset("ZXx")
INIT_PID = 1


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of ``/proc/<pid>/stat`` that we need (proc_pid_stat(5))."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: str
    """Clock ticks between boot and the start of the process."""

    @property
    def is_alive(self) -> bool:
        """A zombie holds nothing any more; only its parent has not looked yet."""
        return self.state not in DEAD_STATES


def read(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """The process with this number, or None when there is none (any more)."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The command name stands in parentheses and may itself hold spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20:
        return None
    return ProcessStat(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=fields[19],
    )


def everyone(proc: Path = PROC) -> Iterator[ProcessStat]:
    """All processes. One small read each, so this is for the rare look after a death."""
    for name in os.listdir(proc):
        if name.isdigit() and (stat := read(int(name), proc)) is not None:
            yield stat


def belongs_to(pid: int, root_pid: int, proc: Path = PROC) -> bool:
    """Whether ``pid`` is ``root_pid``, one of its session, or a descendant of either."""
    seen: set[int] = set()
    while pid > INIT_PID and pid not in seen:
        seen.add(pid)
        if pid == root_pid:
            return True
        stat = read(pid, proc)
        if stat is None:
            return False
        if stat.session == root_pid:
            return True
        pid = stat.parent
    return False

"""The file in a sandbox's folder that says which processes were started for it.

Written after every start, by ``up`` and by tests; read by ``down`` and ``status``, also long after the writer died.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.sandbox import processes
from aibrix_operator.sandbox.processes import ProcessId


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Processes of one sandbox by name (``etcd``, ``agent``, …). One writer at a time: the holder of the name."""

    directory: Path

    @property
    def _file(self) -> Path:
        return self.directory / "processes.json"

    def read(self) -> Mapping[str, ProcessId]:
        """Name → process, in the order of their starts; empty when nothing was started."""
        try:
            rows = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        return {name: ProcessId(row["pid"], row["start_ticks"]) for name, row in rows.items()}

    def add(self, name: str, pid: int) -> ProcessId:
        """Record the running process ``pid`` under ``name``, in place of an earlier one of that name.

        Raises :class:`ProcessLookupError` when it has ended already; its log says why.
        """
        process = processes.identify(pid)
        if process is None:
            raise ProcessLookupError(f"{name} (pid {pid}) ended at once; see {self.directory / 'logs'}")
        self._write({**self.read(), name: process})
        return process

    def remove(self, name: str) -> None:
        self._write({key: process for key, process in self.read().items() if key != name})

    def _write(self, rows: Mapping[str, ProcessId]) -> None:
        text = json.dumps({name: {"pid": p.pid, "start_ticks": p.start_ticks} for name, p in rows.items()}, indent=1)
        scratch = self._file.with_suffix(".tmp")
        scratch.write_text(text)
        os.replace(scratch, self._file)  # a reader sees the old table or the new one, never half

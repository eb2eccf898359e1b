"""What processes hold in memory, looked at every second."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PAUSE_S = 1.0


@dataclass(slots=True)
class Memory:
    """Looks until it is cancelled. FileNotFoundError when a process is gone: none of them may end."""

    pids: Mapping[str, int]
    began_s: float = field(default_factory=time.monotonic)
    seen: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Name → resident kilobytes, one figure a second."""

    async def run(self) -> None:
        while True:
            for name, pid in self.pids.items():
                self.seen[name].append(_resident_kb(pid))
            await asyncio.sleep(_PAUSE_S)


def last_half(figures: Sequence[int]) -> tuple[float, float]:
    """MiB at the end, and by how much of it the last quarter is above the one before: medians of both."""
    quarter = len(figures) // 4
    before, after = (statistics.median(part) for part in (figures[-2 * quarter : -quarter], figures[-quarter:]))
    return after / 1024, after / before - 1


def _resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise FileNotFoundError(f"process {pid} has ended")

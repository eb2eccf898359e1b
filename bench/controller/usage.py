"""What a process and its children used, from procfs; what the API server was asked, from its metrics."""

from __future__ import annotations

import collections
import os
import re
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.sandbox.control_plane import ControlPlane

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_WRITING_VERBS = {"POST", "PUT", "PATCH", "APPLY", "DELETE"}
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_s: float
    peak_rss_bytes: int
    rss_bytes: int


def of_process(pid: int) -> Usage:
    """CPU so far, peak and present resident memory of ``pid``, its ended children and its live descendants, summed."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # Counted from the state (field 3): utime, stime and those of waited-for children are fields 14 to 17.
    cpu_s = sum(int(ticks) for ticks in stat[11:15]) / _TICKS_PER_S
    status = Path(f"/proc/{pid}/status").read_text()
    peak_rss_bytes, rss_bytes = _memory_bytes(status, "VmHWM"), _memory_bytes(status, "VmRSS")
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            used = of_process(int(child))
            cpu_s += used.cpu_s
            peak_rss_bytes += used.peak_rss_bytes
            rss_bytes += used.rss_bytes
    return Usage(cpu_s, peak_rss_bytes, rss_bytes)


def _memory_bytes(status: str, field: str) -> int:
    """A figure of procfs's status; 0 for a process that has ended."""
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def writes(plane: ControlPlane) -> Mapping[str, int]:
    """Write requests that the API server has answered: ``PATCH modelclaims/status`` → count, from its start on."""
    trust = ssl.create_default_context(cadata=plane.authority.certificate.decode())
    request = urllib.request.Request(f"{plane.url}/metrics", headers={"Authorization": f"Bearer {plane.token}"})
    with urllib.request.urlopen(request, context=trust) as answer:
        lines = answer.read().decode().splitlines()
    counts: collections.Counter[str] = collections.Counter()
    for line in lines:
        if line.startswith("apiserver_request_total{"):
            labels = dict(_LABEL.findall(line))
            if labels["verb"] in _WRITING_VERBS:
                subresource = f"/{labels['subresource']}" if labels["subresource"] else ""
                counts[f"{labels['verb']} {labels['resource']}{subresource}"] += int(float(line.rpartition(" ")[2]))
    return counts

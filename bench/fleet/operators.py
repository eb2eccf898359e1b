"""The operator under measurement: how it is started, and what it says of itself."""

from __future__ import annotations

import contextlib
import re
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from aibrix_operator.sandbox import control_plane
from aibrix_operator.sandbox.processes import ProcessId
from bench.controller import harness, peers, usage
from bench.fleet import traced

_PASSES = re.compile(r'^aibrix_modelclaim_pass_duration_seconds_(count|sum)\{scope="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of one kind since the operator's start."""

    count: float = 0.0
    seconds: float = 0.0

    def since(self, before: Passes) -> Passes:
        return Passes(self.count - before.count, self.seconds - before.seconds)

    @property
    def mean_s(self) -> float:
        return self.seconds / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Operator:
    """One process of the operator."""

    process: ProcessId
    address: str
    log: Path

    def passes(self, scope: str) -> Passes:
        """Its passes over the ``whole`` namespace, or over ``some`` of its Pods."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
            found = {(scope, what): float(value) for what, scope, value in _PASSES.findall(answer.read().decode())}
        return Passes(found.get((scope, "count"), 0.0), found.get((scope, "sum"), 0.0))

    def used(self) -> usage.Usage:
        return usage.of_process(self.process.pid)

    def traced_passes(self) -> list[Mapping[str, float]]:
        """What ``traced`` has printed so far, oldest first."""
        lines = self.log.read_text().splitlines()
        return [orjson.loads(line[5:]) for line in lines if line.startswith("pass ")]


@contextlib.contextmanager
def running(kubeconfig: Path, folder: Path, name: str, *, is_traced: bool = False) -> Iterator[Operator]:
    """An operator as long as the block, with a log of its own in ``folder``."""
    port = control_plane.free_port()
    address = f"127.0.0.1:{port}"
    options = ["--kubeconfig", str(kubeconfig), "--log-level", "WARNING", "--liveness", f"http://{address}/healthz"]
    script = str(Path(sys.executable).with_name("aibrix-operator"))
    command = peers.python_module(traced.__name__, *options) if is_traced else [script, "operator", *options]
    log = folder / f"{name}.log"
    with harness.process(command, log, peers.environment(kubeconfig, workers=1)) as process:
        yield Operator(process, address, log)

"""What of a Pod lies on disk, and which processes are its own.

The agent makes a folder for each Pod that it runs and removes it with the Pod. An agent that starts again finds there
what its predecessor left running, and ``down`` needs no agent to end it. All processes of a Pod carry its folder in
their environment, as those of a container are in its control group: engines, and whatever engines start, too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from aibrix_operator.sandbox import processes
from aibrix_operator.sandbox.processes import ProcessId

FOLDER_ENV = "AIBRIX_SANDBOX_POD"
"""Names the Pod's folder in the environment of the Pod's processes."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What was decided for the Pod when it came."""

    namespace: str
    name: str
    uid: str
    node: str
    address: str
    card_slots: tuple[int, ...]
    """Which of the node's cards are its own; nobody shares a card with another Pod."""


@dataclass(frozen=True, slots=True)
class ContainerRuns:
    """What a container's status counts."""

    restarts: int
    token: str
    """The Pod's restart annotation as it was last acted on."""


@dataclass(frozen=True, slots=True)
class PodFolder:
    """One Pod's folder."""

    path: Path

    @property
    def cards(self) -> Path:
        return self.path / "cards"

    @property
    def registry(self) -> Path:
        return self.path / "registry" / "engines.json"

    @property
    def segments(self) -> Path:
        """Stands for the container's ``/dev/shm``."""
        return self.path / "kv"

    @property
    def weights(self) -> Path:
        return self.path / "weights"

    @property
    def log(self) -> Path:
        return self.path / "runtime.log"

    @property
    def facts(self) -> PodFacts | None:
        """None when the agent died before it had written them: nothing was started then."""
        try:
            entry = json.loads((self.path / "pod.json").read_bytes())
        except FileNotFoundError:
            return None
        return PodFacts(**{**entry, "card_slots": tuple(entry["card_slots"])})

    @property
    def sidecar(self) -> ProcessId | None:
        """The sidecar that was started last, which may have ended."""
        try:
            entry = json.loads((self.path / "sidecar.json").read_bytes())
        except FileNotFoundError:
            return None
        return ProcessId(**entry)

    @property
    def container(self) -> ContainerRuns:
        """How often the container was restarted."""
        try:
            return ContainerRuns(**json.loads((self.path / "container.json").read_bytes()))
        except FileNotFoundError:
            return ContainerRuns(restarts=0, token="")

    def write_container(self, runs: ContainerRuns) -> None:
        _write_whole(self.path / "container.json", json.dumps(asdict(runs)))

    def forget_container(self) -> None:
        """Remove what is inside the container's file system: the registry and the KV segments. Volumes stay."""
        for path in (self.registry.parent, self.segments):
            shutil.rmtree(path, ignore_errors=True)  # absent when the sidecar never started

    def write_facts(self, facts: PodFacts) -> None:
        self.path.mkdir(mode=0o700, exist_ok=True)
        _write_whole(self.path / "pod.json", json.dumps(asdict(facts)))

    def write_sidecar(self, process: ProcessId) -> None:
        _write_whole(self.path / "sidecar.json", json.dumps(asdict(process)))

    def processes(self) -> list[ProcessId]:
        """Every live process of the Pod."""
        mark = os.fsencode(f"{FOLDER_ENV}={self.path}")
        return processes.find_marked(mark)

    def end_processes(self, grace_s: float) -> None:
        """As a kubelet stops a container: SIGTERM, then SIGKILL after ``grace_s``. Returns when none is left.

        The sidecar goes first, because it would start again the engines that it sees dying.
        """
        deadline = time.monotonic() + grace_s
        sidecar = self.sidecar
        if sidecar is not None:
            processes.end(sidecar, grace_s)
        for process in self.processes():
            processes.signal_process(process, signal.SIGTERM)
        while left := self.processes():
            if time.monotonic() >= deadline:
                # Found anew in each round: one of them may have started another in the meantime.
                for process in left:
                    processes.signal_process(process, signal.SIGKILL)
            processes.wait_gone(left[0], max(deadline, time.monotonic() + 0.5))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)  # a process that died a moment ago may still have been writing


def list_folders(pods: Path) -> list[PodFolder]:
    """The folders of all Pods below ``pods``."""
    return [PodFolder(path) for path in sorted(pods.iterdir())] if pods.is_dir() else []


def _write_whole(path: Path, text: str) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(text)
    draft.replace(path)

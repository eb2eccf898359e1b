"""Two ModelClaims, two real vLLM processes, one simulated card: ``aibrix-operator sandbox demo-vllm``.

Everything is as in any sandbox (control plane, operator, sidecar), but for the engines: the warm pool's Pod runs vLLM
for the CPU out of the user's cache. The card is simulated, so its memory and the KV limits are bookkeeping; processes,
HTTP and answers are real. Whatever happens, the sandbox is taken down again.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from aibrix_operator.cluster.resource import Object
from aibrix_operator.explain import picture
from aibrix_operator.sandbox import binaries, operators, processes, state, up
from aibrix_operator.sandbox.building import BuildError
from aibrix_operator.sandbox.control_plane import ControlPlaneError
from aibrix_operator.sandbox.kubectl import Kubectl, KubectlError
from aibrix_operator.sandbox.pod_folder import PodFolder
from aibrix_operator.sandbox.processes import ProcessId
from aibrix_operator.sandbox.real_engine import engines, install, questions, tiny_model
from aibrix_operator.sandbox.state import Sandbox, SandboxError

NEEDED_MEMORY_BYTES = 9 * 1024**3
"""Two engines take about 6.5 GiB between them; control plane, operator and sidecar the rest."""
_ACTIVE_WITHIN_S = 600.0
_GONE_WITHIN_S = 60.0
_POLL_S = 1.0


class DemoError(Exception):
    """The demo did not go as it should; the text says what was expected and what was seen."""


_FAILURES = (
    *(DemoError, KubectlError, questions.NoAnswer, install.InstallError, tiny_model.ModelError),
    *(SandboxError, BuildError, ControlPlaneError),
)


def run(console: Console) -> int:
    """The whole demo; 0 when every step went as it should. Called by the command line."""
    started = time.monotonic()
    try:
        with _ended_by_sigterm():
            check_machine()
            home = install.ensure(lambda line: _say(console, line))
            models = [
                tiny_model.ensure_model(home.python, binaries.cache_root() / "models", seed)
                for seed in range(1, len(engines.CLAIMS) + 1)
            ]
            with tempfile.TemporaryDirectory(prefix="aibrix-vllm-demo-") as scratch:
                _in_sandbox(console, home, models, Path(scratch))
    except _FAILURES as error:
        console.print("[bold red]The demo failed.[/bold red]")
        _say(console, str(error))
        return 1
    console.print(f"[bold green]Done[/bold green] in {time.monotonic() - started:.0f} s.", highlight=False)
    return 0


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does, with everything cleaned up."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_machine() -> None:
    """Refuse early, before gigabytes are fetched. Raises DemoError or KubectlError."""
    Kubectl(Path(os.devnull))  # refuses where there is no kubectl
    free = _available_memory_bytes()
    if free < NEEDED_MEMORY_BYTES:
        raise DemoError(
            f"two engines and a control plane need about {NEEDED_MEMORY_BYTES / 2**30:.0f} GiB of memory and "
            f"{free / 2**30:.1f} GiB are available: end something, and run this again"
        )


def _available_memory_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _say(console: Console, line: str) -> None:
    """Print a line as it is: nothing in it is markup, and a narrow terminal may wrap it, not we."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _in_sandbox(console: Console, home: install.EngineHome, models: Sequence[Path], scratch: Path) -> None:
    name = f"vllm-demo-{os.getpid()}"
    options = up.Options(cards=(engines.CARD,), with_pool=False)
    sandbox = up.up(name, options, report=lambda line: _say(console, line))
    stage = Stage(console, sandbox, home, scratch)
    try:
        stage.play(models)
    except (DemoError, KubectlError, questions.NoAnswer) as error:
        raise DemoError(f"{error}\n{stage.last_words()}") from error
    finally:
        _say(console, "taking the sandbox down")
        if state.load(name) is not None:
            up.down(name)


class Stage:
    """The demo's steps in a running sandbox. Each raises when the world is not as it should be."""

    def __init__(self, console: Console, sandbox: Sandbox, home: install.EngineHome, scratch: Path) -> None:
        self._console = console
        self._sandbox = sandbox
        self._home = home
        self._scratch = scratch
        self._kubectl = Kubectl(sandbox.kubeconfig)

    def play(self, models: Sequence[Path]) -> None:
        profiles = self._scratch / "profiles.json"
        profiles.write_text(json.dumps(engines.profiles()))
        self._kubectl.apply(engines.pool(self._home.python, profiles))
        self._say("waiting for the warm Pod")
        self._kubectl.run("rollout", "status", f"deployment/{engines.POOL}", "--timeout=90s")
        for name, model in zip(engines.CLAIMS, models, strict=True):
            self._kubectl.apply(engines.claim(name, model))
        booted = self._wait_active()
        pod = self._pod()
        folder = PodFolder(self._sandbox.pods / pod["metadata"]["uid"])
        address = pod["status"]["podIP"]
        self._show_engines(booted, folder, address)
        for name in engines.CLAIMS:
            self._ask(name, address, self._claim(name)["status"]["instances"][0]["port"])
        self._delete(folder)

    def _wait_active(self) -> dict[str, float]:
        """Claim → seconds from now until it was Active."""
        self._say(
            f"two claims are applied; two vLLM {self._home.version} boot side by side, which takes a minute or two"
        )
        started = time.monotonic()
        booted: dict[str, float] = {}
        last: dict[str, str] = {}
        while len(booted) < len(engines.CLAIMS):
            for name in engines.CLAIMS:
                words = engines.describe(self._claim(name))
                if words != last.get(name):
                    self._say(f"  {time.monotonic() - started:5.1f} s  {name}: {words}")
                    last[name] = words
                if words.startswith("Active"):
                    booted.setdefault(name, time.monotonic() - started)
                elif words.startswith("Failed"):
                    raise DemoError(f"ModelClaim {name} is {words}")
            if time.monotonic() - started > _ACTIVE_WITHIN_S:
                waiting = "; ".join(f"{name}: {words}" for name, words in last.items())
                raise DemoError(f"not both Active after {_ACTIVE_WITHIN_S:.0f} s: {waiting}")
            time.sleep(_POLL_S)
        return booted

    def _show_engines(self, booted: dict[str, float], folder: PodFolder, address: str) -> None:
        """Print what each engine takes, and hold the limits to what the card has."""
        limits = {name: self._claim(name)["status"]["instances"][0]["kvLimitBytes"] for name in engines.CLAIMS}
        snapshot = questions.snapshot(address)
        trouble = engines.check_division(limits, snapshot)
        memory = engine_memory(folder)
        seen = {model["model_name"]: model for model in snapshot["models"]}
        self._console.print(engines.table(limits, seen, booted, memory))
        shares = [picture.Share(name, engines.MAXIMUM_FOOTPRINT_BYTES, limit) for name, limit in limits.items()]
        self._console.print(picture.draw("The simulated card", engines.CARD_BYTES, shares))
        if trouble:
            raise DemoError("the card is not divided as it should be: " + "; ".join(trouble))

    def _ask(self, name: str, address: str, port: int) -> None:
        answer = questions.ask(address, port, name, "What is a good model?")
        self._console.print(f"[bold]{name}[/bold] at {address}:{port} says:", highlight=False)
        self._say(f"  {answer}")

    def _delete(self, folder: PodFolder) -> None:
        self._say("deleting both claims")
        self._kubectl.run("delete", "modelclaims", *engines.CLAIMS, f"--timeout={_GONE_WITHIN_S:.0f}s")
        deadline = time.monotonic() + _GONE_WITHIN_S
        while left := engine_processes(folder):
            if time.monotonic() > deadline:
                raise DemoError(f"{len(left)} engine processes are left after {_GONE_WITHIN_S:.0f} s: {left}")
            time.sleep(_POLL_S)
        segments = list(folder.segments.iterdir())
        if segments:
            raise DemoError(f"KV segments are left: {segments}")
        self._say("no engine process and no KV segment is left")

    def _pod(self) -> Object:
        pods = self._kubectl.get("pods", "--selector", engines.POOL_SELECTOR)["items"]
        if len(pods) != 1:
            raise DemoError(f"expected one warm Pod, the API server lists {len(pods)}")
        pod: Object = pods[0]
        return pod

    def _claim(self, name: str) -> Object:
        return self._kubectl.get("modelclaim", name)

    def last_words(self) -> str:
        """The ends of the logs that say why: the sidecar's with its engines' output, and the operator's."""
        pods = self._sandbox.pods
        logs = [PodFolder(path).log for path in sorted(pods.iterdir())] if pods.is_dir() else []
        logs.append(self._sandbox.logs / f"{operators.OPERATOR}.log")
        ends = {log.name: log.read_text(errors="replace").splitlines()[-15:] for log in logs if log.is_file()}
        return "\n".join("\n  ".join([f"{name} ends:", *lines]) for name, lines in ends.items())

    def _say(self, line: str) -> None:
        _say(self._console, line)


def engine_processes(folder: PodFolder) -> list[ProcessId]:
    """Every process of the Pod but the sidecar: engines, their workers and their keepers."""
    return [process for process in folder.processes() if process != folder.sidecar]


def engine_memory(folder: PodFolder) -> dict[str, int]:
    """Model → bytes that its engine's processes really take of this machine, files shared with others not counted."""
    registry: dict[str, Any] = json.loads(folder.registry.read_text())
    return {
        entry["model_name"]: processes.session_memory_bytes(ProcessId(entry["pid"], int(entry["pid_start_time"])))
        for entry in registry["engines"]
    }

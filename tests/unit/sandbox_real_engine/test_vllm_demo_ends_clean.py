"""How the demo fails: with one text, a status that is not 0, and nothing left behind."""

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from aibrix_operator.sandbox import state, up
from aibrix_operator.sandbox.fleet import NodeShape
from aibrix_operator.sandbox.real_engine import demo, install, tiny_model
from aibrix_operator.sandbox.state import Sandbox, SandboxError


class Screen(Console):
    """A console whose text a test can read."""

    def __init__(self) -> None:
        self.written = io.StringIO()
        super().__init__(file=self.written, width=200)

    @property
    def text(self) -> str:
        return self.written.getvalue()


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """vLLM, the models and a sandbox are there as far as the demo can tell; gives the sandboxes taken down."""
    monkeypatch.setenv("AIBRIX_STATE_DIR", str(tmp_path))
    (tmp_path / "kubectl").write_text("#!/bin/sh\necho the server is away >&2\nexit 1\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(demo, "_available_memory_bytes", lambda: 64 * 1024**3)
    monkeypatch.setattr(install, "ensure", lambda say: install.EngineHome(tmp_path / "vllm", "0.32.0"))
    monkeypatch.setattr(tiny_model, "ensure_model", lambda python, models, seed: tmp_path / f"model-{seed}")

    def begin(name: str, options: up.Options, report: Callable[[str], None]) -> Sandbox:
        return state.create(name, (NodeShape(1, "node-1", "24gi", 1),), options.runtime_command)

    down: list[str] = []

    def end(name: str) -> None:
        found = state.load(name)
        assert found is not None
        state.remove(found)
        down.append(name)

    monkeypatch.setattr(up, "up", begin)
    monkeypatch.setattr(up, "down", end)
    return down


def test_without_kubectl_nothing_is_installed(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demo.run(screen) == 1
    assert "kubectl is not on PATH" in screen.text


def test_too_little_memory_is_said_in_figures(
    screen: Screen, prepared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_available_memory_bytes", lambda: 3 * 1024**3)
    assert demo.run(screen) == 1
    assert "about 9 GiB of memory and 3.0 GiB are available" in screen.text
    assert prepared == []


def test_a_failed_step_shows_what_kubectl_said_and_takes_the_sandbox_down(screen: Screen, prepared: list[str]) -> None:
    assert demo.run(screen) == 1
    assert "The demo failed." in screen.text
    assert "the server is away" in screen.text
    assert prepared == [f"vllm-demo-{os.getpid()}"]


def test_sigterm_takes_the_sandbox_down_and_gives_the_signal_back(
    screen: Screen, prepared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def interrupted(self: demo.Stage, models: list[Path]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(demo.Stage, "play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo.run(screen)

    assert prepared == [f"vllm-demo-{os.getpid()}"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "error",
    [SandboxError("all ranges are taken"), install.InstallError("make room"), tiny_model.ModelError("no torch")],
)
def test_what_its_parts_refuse_is_shown_as_they_say_it(
    screen: Screen, prepared: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(say: object) -> install.EngineHome:
        raise error

    monkeypatch.setattr(install, "ensure", refuse)
    assert demo.run(screen) == 1
    assert str(error) in screen.text


def test_a_demo_that_went_well_says_so(screen: Screen, prepared: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[list[Path]] = []
    monkeypatch.setattr(demo.Stage, "play", lambda self, models: played.append(models))

    assert demo.run(screen) == 0

    assert [[path.name for path in models] for models in played] == [["model-1", "model-2"]]
    assert "Done in" in screen.text
    assert prepared == [f"vllm-demo-{os.getpid()}"]

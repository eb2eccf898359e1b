"""Runs in every process of the vLLM environment whose variables name this file; starts a keeper in API servers alone.

Executed by the line that the installer puts into the environment's site-packages, before the process's own code, as
kvcached's own autopatch is. Workers and other children of an engine inherit the variables and are told apart by their
command line. Whatever fails here, Python reports on standard error and goes on to start the engine.
"""

import os
import sys
import types
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

ENGINE_MODULE = "vllm.entrypoints.openai.api_server"
RUN_NAME = "aibrix_kvcached_standin"
KEEPER_MODULE = "aibrix_operator.sandbox.real_engine.kvcached_standin.keeper"
_STARTED = f"{RUN_NAME}.started"
SOURCE_ROOT = Path(__file__).resolve().parents[4]


def keeper_command(command: Sequence[str], environ: Mapping[str, str], pid: int, python: str) -> list[str] | None:
    """How to start the keeper of the engine with this command line and ``pid``; None when it is no engine of ours."""
    if environ.get("ENABLE_KVCACHED") != "true" or not environ.get("KVCACHED_IPC_NAME"):
        return None
    if "-m" not in command[:-1]:
        return None
    module = command.index("-m") + 1
    if command[module] != ENGINE_MODULE:
        return None
    # -S: the keeper needs nothing that is installed, and may not run this hook again.
    return [python, "-S", "-m", KEEPER_MODULE, str(pid), *command[module + 1 :]]


def start_detached(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Start ``command`` as no child of this process and in a session of its own.

    An engine kills its children when it ends, and its runtime signals and awaits the engine's process group: the keeper
    plays the driver's part and has to outlive both. Forking is safe: at interpreter start there are no other threads.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                os.execve(command[0], list(command), dict(environ))
        finally:
            os._exit(1)
    os.waitpid(child, 0)


def leave_python_path(path: Sequence[str], environ: MutableMapping[str, str]) -> list[str]:
    """``path`` without what PYTHONPATH put on it; the variable goes, too, so that workers do not get it back.

    The environment is complete in itself. What a sandbox puts on the module path of a Pod is for the sidecar: the
    stand-in of NVML, and beside it one of vLLM, which would be found instead of the real one.
    """
    foreign = {os.path.abspath(entry) for entry in environ.pop("PYTHONPATH", "").split(os.pathsep) if entry}
    return [entry for entry in path if not entry or os.path.abspath(entry) not in foreign]


def main() -> None:
    # Python 3.11 reads the .pth files of a virtual environment twice.
    if _STARTED in sys.modules:
        return
    sys.modules[_STARTED] = types.ModuleType(_STARTED)
    sys.path[:] = leave_python_path(sys.path, os.environ)
    command = keeper_command(sys.orig_argv, os.environ, os.getpid(), sys.executable)
    if command is not None:
        start_detached(command, {**os.environ, "PYTHONPATH": str(SOURCE_ROOT), "PYTHONDONTWRITEBYTECODE": "1"})


if __name__ == RUN_NAME:
    main()

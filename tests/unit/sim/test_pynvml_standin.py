"""The ``pynvml`` stand-in, asked from an interpreter that has nothing of this project but the stand-ins' folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pynvml as real_pynvml
import pytest

import aibrix_operator.sim
from aibrix_operator.sim import card

STANDINS = Path(aibrix_operator.sim.__file__).parent / "standins"
GIB = 1024**3

ASK = """
import json, sys, pynvml
def ask(call):
    try:
        return call()
    except pynvml.NVMLError as error:
        return [type(error).__name__, error.value, str(error)]
answers = eval(sys.stdin.read(), {"ask": ask, "nvml": pynvml})
print(json.dumps(answers, default=vars))
"""


def ask(directory, expression, **environ):
    """The value of an expression over ``nvml`` and ``ask(callable)`` in a bare interpreter (no site-packages)."""
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(STANDINS), **environ}
    if directory is not None:
        clean[card.CARDS_ENV] = str(directory)
    done = subprocess.run(
        [sys.executable, "-S", "-c", ASK],
        input=f"({expression})",
        env=clean,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def cards(tmp_path):
    created = card.create(tmp_path, [card.Card("GPU-a", 10 * GIB, GIB), card.Card("GPU-b", 20 * GIB, 2 * GIB)])
    card.hold(tmp_path, "GPU-a", footprint_bytes=3 * GIB, kv_bytes=GIB)
    return created


def test_memory_and_processes_are_those_of_each_card(tmp_path, cards):
    both = ask(
        tmp_path,
        "nvml.nvmlInit(), [[nvml.nvmlDeviceGetUUID(h), nvml.nvmlDeviceGetMemoryInfo(h, version=nvml.nvmlMemory_v2),"
        " nvml.nvmlDeviceGetMemoryInfo(h), nvml.nvmlDeviceGetComputeRunningProcesses_v3(h)]"
        " for h in map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))], nvml.nvmlShutdown()",
    )[1]
    uuid, memory, memory_v1, processes = both[0]
    assert uuid == "GPU-a"
    assert memory == {
        "version": real_pynvml.nvmlMemory_v2,
        "total": 10 * GIB,
        "reserved": GIB,
        "free": 5 * GIB,
        "used": 4 * GIB,
    }
    assert memory_v1 == {"total": 10 * GIB, "free": 5 * GIB, "used": 5 * GIB}
    assert [(p["pid"], p["usedGpuMemory"]) for p in processes] == [(os.getpid(), 4 * GIB)]
    assert both[1][1]["free"] == 18 * GIB
    assert both[1][3] == []


def test_handles_are_found_by_uuid_and_only_visible_cards_exist(tmp_path, cards):
    answers = ask(
        tmp_path,
        "nvml.nvmlInit(), nvml.nvmlDeviceGetCount(), nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID('GPU-b')),"
        " ask(lambda: nvml.nvmlDeviceGetHandleByUUID('GPU-a')), ask(lambda: nvml.nvmlDeviceGetHandleByIndex(1))",
        NVIDIA_VISIBLE_DEVICES="GPU-b",
    )
    assert answers[1:] == [
        1,
        0,
        ["NVMLError_NotFound", 6, "Not Found"],
        ["NVMLError_InvalidArgument", 2, "Invalid Argument"],
    ]


def test_without_cards_there_is_no_library(tmp_path):
    assert ask(None, "ask(nvml.nvmlInit)") == ["NVMLError_LibraryNotFound", 12, "NVML Shared Library Not Found"]
    assert ask(tmp_path / "none", "ask(nvml.nvmlInit)") == ["NVMLError_DriverNotLoaded", 9, "Driver Not Loaded"]


def test_calls_before_init_and_after_the_last_shutdown_are_refused(tmp_path, cards):
    answers = ask(
        tmp_path,
        "ask(nvml.nvmlDeviceGetCount), nvml.nvmlInit(), nvml.nvmlInit(), nvml.nvmlShutdown(),"
        " nvml.nvmlDeviceGetCount(), nvml.nvmlShutdown(), ask(nvml.nvmlDeviceGetCount)",
    )
    assert answers[0] == answers[-1] == ["NVMLError_Uninitialized", 1, "Uninitialized"]
    assert answers[4] == 2


PROBE = (
    "ask(nvml.nvmlInit), ask(nvml.nvmlDeviceGetCount),"
    " ask(lambda: nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).total),"
    " ask(lambda: nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(1), nvml.nvmlMemory_v2).total),"
    " ask(lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses_v3(nvml.nvmlDeviceGetHandleByIndex(1))))"
)
UNKNOWN = ["NVMLError_Unknown", 999, "Unknown Error"]
UNINITIALIZED = ["NVMLError_Uninitialized", 1, "Uninitialized"]
LOST = ["NVMLError_GpuIsLost", 15, "GPU is lost"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("", [UNKNOWN] + [UNINITIALIZED] * 4, id="everything"),
        pytest.param("GPU-b", [None, 2, 10 * GIB, LOST, LOST], id="one card"),
        pytest.param(
            "nvmlDeviceGetComputeRunningProcesses_v3", [None, 2, 10 * GIB, 20 * GIB, UNKNOWN], id="one function"
        ),
        pytest.param(
            "nvmlMemory_v2",
            [None, 2, 10 * GIB, ["NVMLError_FunctionNotFound", 13, "Function Not Found"], 0],
            id="an old driver",
        ),
    ],
)
def test_nvml_fails_as_the_broken_file_says(tmp_path, cards, words, expected):
    (tmp_path / "nvml-broken").write_text(words)
    assert ask(tmp_path, PROBE) == expected


def test_a_foreign_pid_namespace_shows_pids_that_match_nobody(tmp_path, cards):
    (tmp_path / "nvml-host-pids").touch()
    seen = ask(
        tmp_path,
        "nvml.nvmlInit(), nvml.nvmlDeviceGetComputeRunningProcesses_v3(nvml.nvmlDeviceGetHandleByIndex(0))",
    )[1]
    assert [p["usedGpuMemory"] for p in seen] == [4 * GIB]
    assert not Path(f"/proc/{seen[0]['pid']}").exists()


def test_names_and_codes_are_those_of_the_real_module():
    source = {"__name__": "standin", "__file__": str(STANDINS / "pynvml.py")}
    exec(compile((STANDINS / "pynvml.py").read_text(), "pynvml.py", "exec"), source)
    public = {name for name in source if name.startswith(("nvml", "NVML"))}
    assert [name for name in sorted(public) if not hasattr(real_pynvml, name)] == []
    assert {n: source[n] for n in public if n.startswith("NVML_")} == {
        n: getattr(real_pynvml, n) for n in public if n.startswith("NVML_")
    }
    assert source["nvmlMemory_v2"] == real_pynvml.nvmlMemory_v2

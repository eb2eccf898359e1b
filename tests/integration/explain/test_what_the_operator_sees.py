"""explain, plan and top beside a real operator: three claims on one simulated H20, of which one waits."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from aibrix_operator.api import names
from aibrix_operator.sandbox.kubectl import Kubectl
from aibrix_operator.sandbox.pool import POOL

pytestmark = pytest.mark.integration

COMMAND = (sys.executable, "-m", "aibrix_operator.cli")
WITHIN_S = 60


def manifest(name: str) -> dict:
    return {
        "apiVersion": f"{names.MODEL_GROUP}/{names.MODEL_VERSION}",
        "kind": "ModelClaim",
        "metadata": {"name": name},
        "spec": {
            "podSelector": {"matchLabels": {names.POOL_LABEL: POOL}},
            "artifactURL": f"huggingface://example/{name}",
            "perGPU": {"maximumFootprint": "30Gi", "kvFloor": "10Gi"},
        },
    }


@pytest.fixture(scope="module")
def kubectl(sandbox) -> Kubectl:
    return Kubectl(sandbox.kubeconfig)


@pytest.fixture(scope="module")
def claims(kubectl) -> Iterator[tuple[str, ...]]:
    """Two that are served and one that waits."""
    made = ("seen-a", "seen-b", "seen-c")
    for name, until in zip(made, ("phase}=Active", "phase}=Active", "phase}=Pending"), strict=True):
        kubectl.apply(manifest(name))
        kubectl.run("wait", f"modelclaim/{name}", f"--for=jsonpath={{.status.{until}", f"--timeout={WITHIN_S}s")
    refused = '--for=jsonpath={.status.conditions[?(@.type=="Scheduled")].reason}=NoMatchingPods'
    kubectl.run("wait", "modelclaim/seen-c", refused, f"--timeout={WITHIN_S}s")
    yield made
    kubectl.run("delete", "modelclaims", *made, "--ignore-not-found", f"--timeout={WITHIN_S}s")


def run(sandbox, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(sandbox.kubeconfig), "COLUMNS": "100"}
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


def scheduled(kubectl, name: str) -> dict:
    conditions = kubectl.get("modelclaim", name)["status"]["conditions"]
    return next(c for c in conditions if c["type"] == "Scheduled")


def test_the_explanation_is_the_condition_and_the_plan_foresaw_both(sandbox, kubectl, claims, tmp_path):
    told = json.loads(run(sandbox, "explain", "claim", "seen-c", "-o", "json").stdout)
    condition = scheduled(kubectl, "seen-c")
    assert (told["reason"], told["message"]) == (condition["reason"], condition["message"])
    assert told["conditionSaysTheSame"] is True
    assert [s["delete"] for s in told["suggestions"]] == [["seen-a"], ["seen-b"]]

    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump_all(manifest(name) for name in claims))
    done = run(sandbox, "plan", "-f", str(path), "--cards", "1xH20", "-o", "json")
    plan = json.loads(done.stdout)
    [pod] = [c["pod"] for c in told["candidates"]]
    assert done.returncode == 1
    assert [u["message"].replace("h20-1", pod) for u in plan["unplaced"]] == [condition["message"]]
    planned = {c["name"]: c["kvLimitBytes"] for c in plan["cards"][0]["claims"]}
    assert planned == {e["claim"]: e["kvLimitBytes"] for e in told["candidates"][0]["engines"]}


def test_one_frame_of_top_shows_the_card_and_who_waits(sandbox, claims, tmp_path):
    picture = tmp_path / "top.svg"
    shown, frame, deadline = None, "", time.monotonic() + WITHIN_S
    while shown is None:  # a busy machine may make the sidecar miss one reading of an engine's load
        assert time.monotonic() < deadline, frame
        done = run(sandbox, "top", "--once", "--namespace", "default", "--svg", str(picture))
        assert done.returncode == 0, done.stderr
        frame = done.stdout
        shown = re.search(r"seen-a +serving +idle +█ 30.0 GiB +▓ 0.0 of ░ 17.5 GiB", frame)
    assert re.search(r"seen-c +Pending +NoMatchingPods: no warm pod can hold this model", frame)
    assert "seen-c" in picture.read_text()


def test_top_draws_again_and_again_until_it_is_interrupted(sandbox, claims):
    terminal, process = _in_a_terminal(sandbox, "top", "--interval", "0.2")
    try:
        drawn, times = b"", set()
        deadline = time.monotonic() + WITHIN_S
        while len(times) < 3:
            assert time.monotonic() < deadline, drawn[-2000:]
            ready, _, _ = select.select([terminal], [], [], 1.0)
            drawn += os.read(terminal, 65536) if ready else b""
            times = set(re.findall(rb"\d\d:\d\d:\d\d UTC", drawn))
        assert b"seen-c" in drawn
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def _in_a_terminal(sandbox, *arguments: str) -> tuple[int, subprocess.Popen[bytes]]:
    """Run a command in a terminal of 30 lines of 100 characters; the other end of the terminal comes back."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = {**os.environ, "KUBECONFIG": str(sandbox.kubeconfig), "TERM": "xterm-256color"}
    process = subprocess.Popen([*COMMAND, *arguments], env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    return ours, process


def test_deleting_whom_it_names_makes_room(sandbox, kubectl, claims):
    told = json.loads(run(sandbox, "explain", "claim", "seen-c", "-o", "json").stdout)
    kubectl.run("delete", "modelclaims", *told["suggestions"][0]["delete"], f"--timeout={WITHIN_S}s")
    kubectl.run("wait", "modelclaim/seen-c", "--for=jsonpath={.status.phase}=Active", f"--timeout={WITHIN_S}s")


def test_a_claim_that_is_not_there_is_an_error(sandbox):
    done = run(sandbox, "explain", "claim", "nobody")
    assert (done.returncode, done.stderr) == (1, "error: there is no ModelClaim default/nobody\n")


def test_a_cluster_that_does_not_answer_is_an_error(sandbox, tmp_path: Path):
    config = yaml.safe_load(sandbox.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    done = run(sandbox, "top", "--once", "--kubeconfig", str(tmp_path / "config"))
    assert done.returncode == 1
    assert done.stderr.startswith("error: LIST modelclaims: ")

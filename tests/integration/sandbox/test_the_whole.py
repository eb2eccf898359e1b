"""The real operator, sidecar and stand-in engines: what ``aibrix-operator sandbox up`` gives its user."""

from __future__ import annotations

import io
import json
import urllib.request

import pytest
from rich.console import Console
from sandbox_probes import eventually, kubectl, processes_about, ready_pods

from aibrix_operator.sandbox import display, up
from aibrix_operator.sandbox.pod_folder import PodFolder

pytestmark = pytest.mark.integration


def test_the_claim_that_up_prints_gets_an_engine_that_ends_with_its_pod(sandbox, tmp_path):
    console = Console(record=True, width=40, file=io.StringIO())
    display.show_next_steps(sandbox, console)
    _, _, rest = console.export_text().partition("<<EOF\n")
    manifest = tmp_path / "claim.yaml"
    manifest.write_text(rest.partition("\nEOF")[0])
    (pod,) = ready_pods(sandbox)

    kubectl(sandbox, "apply", "-f", str(manifest))
    kubectl(sandbox, "wait", "modelclaim/qwen", "--for=jsonpath={.status.phase}=Active", "--timeout=60s")

    # Not always the first of the range: another process of this machine may listen there on all addresses.
    port = kubectl(sandbox, "get", "modelclaim/qwen", "-o", "jsonpath={.status.instances[0].port}").strip()

    def served() -> list[str]:
        with urllib.request.urlopen(f"http://{pod.address}:{port}/v1/models", timeout=2) as answer:
            return [model["id"] for model in json.loads(answer.read())["data"]]

    assert eventually(served) == ["qwen"]
    uid = kubectl(sandbox, "get", "pod", pod.name, "-o", "jsonpath={.metadata.uid}")
    folder = PodFolder(sandbox.pods / uid)
    assert len(folder.processes()) >= 2

    kubectl(sandbox, "delete", "modelclaim/qwen", "--wait=false")
    kubectl(sandbox, "delete", "pod", pod.name)

    assert processes_about(folder.path) == []
    assert eventually(lambda: ready_pods(sandbox))


def test_the_status_names_every_process_with_its_memory_and_every_pod(sandbox):
    status = up.status(sandbox.name)
    console = Console(record=True, width=160, file=io.StringIO())
    display.show_status(status, console)

    assert all(row.is_alive and row.memory_bytes > 5 << 20 for row in status.processes)
    assert [row.name for row in status.processes][-2:] == ["agent", "operator"]
    text = console.export_text()
    assert "1 node with 1 × h20" in text
    assert all(pod.name in text and pod.address in text for pod in status.pods)

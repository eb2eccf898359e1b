"""The plugin as kubectl finds and runs it, on a real cluster."""

import os
import shutil
import stat
import subprocess
import sys

import pytest

from aibrix_operator.api import names
from aibrix_operator.sandbox.kubectl import Kubectl
from aibrix_operator.sandbox.pool import POOL

pytestmark = pytest.mark.integration
WITHIN_S = 60


@pytest.fixture(scope="module")
def plugin(sandbox, tmp_path_factory):
    """Runs ``kubectl aibrix …``, with the console script of this checkout on PATH."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH")
    folder = tmp_path_factory.mktemp("path")
    script = folder / "kubectl-aibrix"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aibrix_operator.plugin.command "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "KUBECONFIG": str(sandbox.kubeconfig)}

    def run(*words):
        command = ["kubectl", "aibrix", *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=WITHIN_S * 2, check=False)

    return run


@pytest.fixture(scope="module")
def claim(sandbox):
    kubectl = Kubectl(sandbox.kubeconfig)
    kubectl.apply(
        {
            "apiVersion": f"{names.MODEL_GROUP}/{names.MODEL_VERSION}",
            "kind": "ModelClaim",
            "metadata": {"name": "plugged"},
            "spec": {
                "podSelector": {"matchLabels": {names.POOL_LABEL: POOL}},
                "artifactURL": "huggingface://example/plugged",
                "perGPU": {"maximumFootprint": "12Gi", "kvFloor": "2Gi"},
            },
        }
    )
    kubectl.run("wait", "modelclaim/plugged", "--for=jsonpath={.status.phase}=Active", f"--timeout={WITHIN_S}s")
    yield "plugged"
    kubectl.run("delete", "modelclaim", "plugged", f"--timeout={WITHIN_S}s")


def test_top_and_explain_show_the_cluster_that_kubectl_looks_at(plugin, claim):
    assert claim in plugin("top", "--once").stdout
    assert f"default/{claim}" in plugin("explain", "claim", claim).stdout


def test_wake_leaves_an_awake_claim_alone_and_waits_for_it(plugin, claim):
    told = plugin("wake", claim, "--wait")
    assert (told.returncode, told.stdout) == (0, f"{claim} does not sleep\n{claim} serves\n")


def test_wake_of_nobody_is_an_error(plugin):
    told = plugin("wake", "nobody")
    assert (told.returncode, told.stderr) == (1, "error: there is no ModelClaim default/nobody\n")

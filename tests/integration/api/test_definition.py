"""The definition itself: current, explained, and shown by kubectl in AIBrix's columns."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from api_claims import spec
from kubernetes.aio import client

from aibrix_operator.api import modelclaim

pytestmark = pytest.mark.integration

COLUMNS = ["NAME", "PHASE", "DESIRED", "READY", "ENGINE", "ARTIFACT", "AGE"]


def test_the_manifests_are_what_the_models_say():
    done = subprocess.run(
        [sys.executable, "-m", "aibrix_operator.manifests", "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


async def test_the_definition_is_established_without_complaints(claims, api):
    definition = await client.ApiextensionsV1Api(api).read_custom_resource_definition("modelclaims.model.aibrix.ai")
    conditions = {c.type: c.status for c in definition.status.conditions}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions
    assert definition.spec.names.short_names == ["mc"]


@pytest.fixture
def kubectl(api_server, tmp_path):
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not on PATH")
    environment = os.environ | {"KUBECACHEDIR": str(tmp_path)}  # what an earlier server said of itself counts not

    def run(*arguments: str) -> str:
        command = [program, f"--kubeconfig={api_server.kubeconfig}", *arguments]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout

    return run


async def test_the_columns_come_in_aibrix_order(claims, namespace, kubectl):
    await claims.create(spec(), "qwen")
    head, row = kubectl("get", "mc", f"--namespace={namespace}").splitlines()
    assert head.split() == COLUMNS
    assert row.split()[0] == "qwen"
    wide = kubectl("get", "mc", f"--namespace={namespace}", "--output=wide").splitlines()[0].split()
    assert wide[: len(COLUMNS)] == COLUMNS


async def test_the_status_is_a_subresource(claims, namespace, api):
    made = await claims.create(spec(), "qwen")
    assert "status" not in made
    objects, place = client.CustomObjectsApi(api), ("model.aibrix.ai", "v1alpha1", namespace, "modelclaims", "qwen")
    patch = {"status": {"phase": "Active", "readyReplicas": 1}, "spec": {"replicas": 9}}
    changed = await objects.patch_namespaced_custom_object_status(
        *place, patch, _content_type="application/merge-patch+json"
    )
    assert changed["status"] == {"phase": "Active", "readyReplicas": 1}
    assert changed["spec"] == spec()
    assert changed["metadata"]["generation"] == made["metadata"]["generation"]


@pytest.mark.parametrize("field", ["perGPU.maximumFootprint", "podSelector.matchExpressions", "engineConfig.args"])
async def test_every_field_is_explained(claims, kubectl, field):
    said = kubectl("explain", f"modelclaim.spec.{field}")
    assert "DESCRIPTION:" in said
    assert "<empty>" not in said


async def test_no_field_is_without_a_description(claims, kubectl):
    definition = json.loads(kubectl("get", "crd", "modelclaims.model.aibrix.ai", "--output=json"))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]

    def bare(properties, path):
        for name, value in properties.items():
            if not value.get("description"):
                yield f"{path}.{name}"
            inner = value.get("items", value)
            yield from bare(inner.get("properties", {}), f"{path}.{name}")

    assert list(bare(schema["spec"]["properties"], "spec")) == []
    assert list(bare(schema["status"]["properties"], "status")) == []
    assert modelclaim.MODELCLAIM.plural == definition["spec"]["names"]["plural"]

"""The doctor looks at real clusters: a sandbox that lacks what a release has, and one that is broken on purpose."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from aibrix_operator.cli import app
from aibrix_operator.doctor import checks, looking
from aibrix_operator.sandbox import rights

pytestmark = pytest.mark.integration


def examine(kubeconfig, *words):
    """Exit code, and findings as (level, text)."""
    done = CliRunner().invoke(app, ["doctor", "--kubeconfig", str(kubeconfig), "--output", "json", *words])
    return done.exit_code, [(found["level"], found["text"]) for found in json.loads(done.stdout)]


def test_of_a_sandbox_it_says_that_no_release_is_installed_and_that_sidecars_are_open(sandbox):
    """Operator and gateway are processes here and no Pods; all else is as it should be."""
    status, found = examine(sandbox.kubeconfig)
    assert status == 1
    (missing, *others) = found
    assert missing == ("error", "there is no operator: no Pod has the labels of one")
    assert [(level, text.partition(":")[0]) for level, text in others] == [
        ("warning", "there is no gateway"),
        ("warning", "warm Pods whose sidecar asks for no token"),
    ]


def test_who_may_read_little_is_told_what_could_not_be_looked_at(sandbox):
    """The gateway's rights: it lists Pods, and neither definitions nor Deployments."""
    _, found = examine(rights.kubeconfig(sandbox.directory, "gateway"))
    notes = [text for level, text in found if level == "note"]
    assert [text.partition(" could")[0] for text in notes] == ["the definitions", "the policies of pools"]


def test_an_empty_cluster_lacks_every_definition_and_a_pool(api_server):
    status, found = examine(api_server.kubeconfig)
    assert status == 1
    errors = [text for level, text in found if level == "error"]
    assert "there is no warm pool: no Pod has the label claim.model.aibrix.ai/pool" in errors


def test_without_a_cluster_it_says_so(tmp_path):
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}],
                "current-context": "c",
            }
        )
    )
    done = CliRunner().invoke(app, ["doctor", "--kubeconfig", str(nowhere)])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: LIST pods")


def test_people_are_told_in_two_lines_a_finding(sandbox):
    done = CliRunner().invoke(app, ["doctor", "--kubeconfig", str(sandbox.kubeconfig)])
    assert done.stdout.splitlines()[:2] == [
        "error: there is no operator: no Pod has the labels of one",
        "  → install the chart, or look in its namespace: `kubectl get deployments -A`",
    ]
    assert done.stdout.splitlines()[-1] == "3 findings"


async def looked_with_the_rights_of(sandbox, component, namespace=None):
    """What a doctor finds that runs in the Pod of ``component``."""
    scope = looking.Scope(namespace, own_namespace=rights.NAMESPACE, lease_look_s=2.0)
    async with looking.connect(rights.kubeconfig(sandbox.directory, component), None, scope) as doctor:
        return await doctor.look()


async def test_in_the_operators_pod_every_right_of_the_operator_is_there_and_its_lease_is_renewed(sandbox):
    facts = await looked_with_the_rights_of(sandbox, "operator")
    assert {permission.is_allowed for permission in facts.permissions} == {True}
    assert ("leases.coordination.k8s.io", rights.NAMESPACE) in {(p.resource, p.namespace) for p in facts.permissions}
    assert facts.lease.is_renewed
    assert abs(facts.lease.skew_s) < checks.CLOCKS_AGREE_S
    assert facts.unseen == ()


async def test_rights_that_are_missing_are_named(sandbox):
    """Asked with the gateway's rights about the operator's."""
    facts = await looked_with_the_rights_of(sandbox, "gateway")
    refused = {(p.verb, p.resource) for p in facts.permissions if not p.is_allowed}
    assert {("create", "events"), ("patch", "modelclaims/status.model.aibrix.ai"), ("list", "nodes")} <= refused
    assert ("patch", "pods") not in refused


async def test_an_operator_of_one_namespace_is_asked_for_no_cluster_role(sandbox):
    facts = await looked_with_the_rights_of(sandbox, "gateway", namespace="default")
    asked = {(p.resource, p.namespace) for p in facts.permissions}
    assert ("nodes", "default") not in asked
    assert ("events", "default") in asked

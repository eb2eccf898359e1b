"""What the API server says, as facts."""

import copy

import pytest

from aibrix_operator import definitions
from aibrix_operator.api import names
from aibrix_operator.doctor import comparing
from aibrix_operator.doctor.facts import Standing

(OURS,) = (d for d in definitions.find() if d["metadata"]["name"] == "modelclaims.model.aibrix.ai")


def served(definition, **status):
    conditions = [{"type": "Established", "status": "True", **status}]
    return copy.deepcopy(definition) | {"status": {"conditions": conditions}}


def test_a_definition_as_ours_with_the_servers_own_additions_is_good():
    theirs = served(OURS)
    theirs["spec"]["conversion"] = {"strategy": "None"}
    theirs["spec"]["names"]["listKind"] = "ModelClaimList"
    assert comparing.definition(OURS, theirs).standing is Standing.GOOD


def test_a_missing_definition_and_one_that_is_not_served_are_told_apart():
    assert comparing.definition(OURS, None).standing is Standing.MISSING
    refused = comparing.definition(OURS, served(OURS, status="False", message="names conflict"))
    assert (refused.standing, refused.reason) == (Standing.NOT_SERVED, "names conflict")
    fresh = comparing.definition(OURS, copy.deepcopy(OURS))
    assert (fresh.standing, fresh.reason) == (Standing.NOT_SERVED, "it is not established")


def test_an_earlier_definition_is_told_by_the_first_thing_that_it_lacks():
    theirs = served(OURS)
    spec = theirs["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["perGPU"]
    found = comparing.definition(OURS, theirs)
    assert found.standing is Standing.OTHER
    assert found.reason.endswith("properties.spec.properties.perGPU differs")


@pytest.mark.parametrize(
    ("ours", "theirs", "where"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, ""),
        ({"a": 1}, {"a": 2}, "x.a"),
        ({"a": {"b": 1}}, {"a": []}, "x.a"),
        ([1, 2], [1], "x"),
        ([{"a": 1}], [{"a": 2}], "x[0].a"),
        (["ab"], ["ab"], ""),
        ([1], "1", "x"),
    ],
)
def test_the_first_difference_is_named_by_its_path(ours, theirs, where):
    assert comparing.first_lack(ours, theirs, "x") == where


def pod(component, *, ready="True", **status):
    labels = {comparing.COMPONENT_LABEL: component}
    conditions = [{"type": "Ready", "status": ready}, *status.pop("conditions", [])]
    return {
        "metadata": {"name": "p", "namespace": "n", "labels": labels},
        "status": {"conditions": conditions, **status},
    }


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (pod("operator", ready="False"), ""),
        (
            pod("operator", ready="False", containerStatuses=[{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]),
            "CrashLoopBackOff",
        ),
        (
            pod("gateway", ready="False", initContainerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull"}}}]),
            "ErrImagePull",
        ),
        (
            pod(
                "gateway",
                ready="False",
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
            ),
            "Unschedulable",
        ),
    ],
    ids=["its probe", "a crash", "an image", "no node"],
)
def test_why_a_pod_is_not_ready(body, reason):
    (found,) = comparing.component_pods([body])
    assert (found.is_ready, found.reason) == (False, reason)


def test_other_pods_of_the_release_and_those_that_go_are_no_component():
    going = pod("operator")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert comparing.component_pods([pod("redis"), going]) == ()
    assert comparing.component_pods([pod("gateway")])[0].is_ready


def lease_object(renewed, *, holder="op-1", written="2026-01-01T00:00:10Z"):
    return {
        "metadata": {"managedFields": [{"time": "2026-01-01T00:00:01Z"}, {"time": written}]},
        "spec": {"holderIdentity": holder, "renewTime": renewed},
    }


def test_a_lease_that_changed_between_two_looks_is_renewed():
    before, after = lease_object("2026-01-01T00:00:09.5Z"), lease_object("2026-01-01T00:00:10.5Z")
    found = comparing.lease("n", "l", before, after)
    assert (found.holder, found.is_renewed, found.skew_s) == ("op-1", True, 0.5)
    assert not comparing.lease("n", "l", before, before).is_renewed


def test_the_leaders_clock_is_held_against_the_time_of_its_write():
    late = lease_object("2026-01-01T00:00:00Z")
    assert comparing.lease("n", "l", late, late).skew_s == -10.0
    late["metadata"].pop("managedFields")
    assert comparing.lease("n", "l", late, late).skew_s is None


def test_without_a_lease_nobody_leads():
    found = comparing.lease("n", "l", None, None)
    assert (found.holder, found.is_renewed, found.skew_s) == ("", False, None)


def test_a_warm_pod_has_a_sidecar_when_a_container_declares_its_port():
    container = {"ports": [{"containerPort": names.RUNTIME_PORT}], "resources": {"limits": {names.GPU_RESOURCE: "2"}}}
    body = {
        "metadata": {"name": "p", "namespace": "n", "labels": {names.POOL_LABEL: "demo", names.ENABLED_LABEL: "true"}},
        "spec": {"containers": [container]},
    }
    found = comparing.pool_pod(body)
    assert (found.pool, found.is_enabled, found.has_sidecar, found.gpus) == ("demo", True, True, 2)
    container.pop("ports")
    assert not comparing.pool_pod(body).has_sidecar

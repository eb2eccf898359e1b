"""From the API server's JSON to frozen values, for objects as no schema would let them through as well."""

from datetime import UTC, datetime

import pytest
from builders import POOL_LABELS

from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim import parse
from aibrix_operator.modelclaim.parse import UnreadableClaim

SPEC = {"podSelector": {}, "artifactURL": "huggingface://org/model"}
METADATA = {"name": "a", "namespace": "default", "uid": "u"}


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        pytest.param("2026-01-01T00:00:05Z", datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC), id="as Kubernetes writes it"),
        pytest.param("2026-01-01T00:00:05", datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC), id="without an offset"),
        pytest.param("yesterday", None, id="no time"),
        pytest.param("", None, id="empty"),
        pytest.param(5, None, id="a number"),
        pytest.param(None, None, id="absent"),
    ],
)
def test_times(text, moment):
    assert parse.parse_time(text) == moment


@pytest.mark.parametrize(
    ("containers", "gpus"),
    [
        pytest.param([{"resources": {"limits": {"nvidia.com/gpu": "2"}}}], 2, id="limits"),
        pytest.param([{"resources": {"requests": {"nvidia.com/gpu": 1}}}], 1, id="else requests"),
        pytest.param(
            [{"resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "7"}}}], 1, id="not both"
        ),
        pytest.param([{"resources": {"limits": {"nvidia.com/gpu": "1"}}}] * 3, 3, id="of all containers"),
        pytest.param([{"resources": {"limits": {"nvidia.com/gpu": "1.5"}}}, {}], 0, id="no whole number"),
        pytest.param([{"resources": None}, {"resources": {"limits": None}}], 0, id="nothing said"),
        pytest.param(None, 0, id="no containers"),
    ],
)
def test_gpus_of_a_pod(containers, gpus):
    assert parse.count_gpus({"containers": containers}) == gpus


def test_slimming_a_pod_twice_changes_nothing():
    body = {
        "metadata": {
            "name": "warm-0",
            "namespace": "default",
            "uid": "u",
            "resourceVersion": "7",
            "labels": POOL_LABELS,
            "annotations": {"route.claim.model.aibrix.ai/a": "{}", "example.com/long": "x" * 1000},
        },
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    slim = parse.slim_pod(body)
    assert parse.slim_pod(slim) == slim
    pod = parse.parse_pod(slim)
    assert (pod.gpu_count, pod.is_running, pod.is_ready) == (2, True, True)
    assert pod.annotations == {"route.claim.model.aibrix.ai/a": "{}"}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        pytest.param({}, "metadata.name is missing", id="nothing"),
        pytest.param({"metadata": METADATA}, "spec: ", id="no spec"),
        pytest.param({"metadata": METADATA, "spec": {**SPEC, "replicas": 2}}, "spec.replicas: ", id="two replicas"),
        pytest.param({"metadata": METADATA, "spec": {**SPEC, "engine": "other"}}, "spec.engine: ", id="unknown engine"),
        pytest.param(
            {"metadata": METADATA, "spec": {**SPEC, "perGPU": {"kvFloor": "1Gi"}}},
            "spec.perGPU.maximumFootprint: ",
            id="half a perGPU",
        ),
    ],
)
def test_a_claim_that_no_schema_lets_through_says_what_is_wrong(body, error):
    with pytest.raises(UnreadableClaim, match=error.replace(".", r"\.")):
        parse.parse_claim(body)


def test_a_status_that_does_not_fit_counts_as_empty():
    claim = parse.parse_claim({"metadata": METADATA, "spec": SPEC, "status": {"instances": [{"port": "x"}]}})
    assert claim.status.instances == ()


def test_an_empty_model_name_counts_as_unset():
    assert parse.parse_claim({"metadata": METADATA, "spec": {**SPEC, "modelName": ""}}).model == "a"


def test_a_fraction_of_a_byte_rounds_up():
    spec = {**SPEC, "perGPU": {"maximumFootprint": "5.6Gi", "kvFloor": 1024}}
    assert parse.parse_claim({"metadata": METADATA, "spec": spec}).seat == Seat(6_012_954_215, 1024)


def test_a_pod_that_is_being_deleted_runs_no_more_and_is_owned_by_its_replica_set():
    owners = [
        {"kind": "Node", "uid": "n", "controller": False},
        {"kind": "Job", "uid": "j", "controller": True},
        {"kind": "ReplicaSet", "uid": "r", "controller": True},
    ]
    metadata = {**METADATA, "ownerReferences": owners, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    slim = parse.slim_pod({"metadata": metadata, "status": {"phase": "Running", "podIP": "10.0.0.1"}})
    assert parse.slim_pod(slim) == slim
    assert (slim["metadata"]["deletionTimestamp"], slim["owner"]) == ("2026-01-01T00:00:00Z", "r")


def test_of_two_instances_on_one_pod_the_first_counts():
    """Another hand wrote it; charged twice, it would end every pass of its namespace."""
    instances = [{"pod": "p", "kvLimitBytes": 1}, {"pod": "q"}, {"pod": "p", "kvLimitBytes": 2}]
    body = {
        "metadata": {"name": "a"},
        "spec": {"podSelector": {}, "artifactURL": "u"},
        "status": {"instances": instances},
    }
    assert [(i.pod, i.kv_limit_bytes) for i in parse.parse_claim(body).status.instances] == [("p", 1), ("q", 0)]

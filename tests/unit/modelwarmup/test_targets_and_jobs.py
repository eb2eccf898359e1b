"""Which nodes get a Job, what it looks like, and how many there are at once."""

import re
from dataclasses import replace

import pytest
from warmup_builders import IMAGE, NOW, OPEN, REF, REVISION, job, planned, spec, warmup

from aibrix_operator.api.modelwarmup import ModelWarmupSpec, Reason
from aibrix_operator.controller.steps import Create, Delete, Moment, Ref
from aibrix_operator.modelwarmup.job import job_name, job_of
from aibrix_operator.modelwarmup.revision import revision_of
from aibrix_operator.modelwarmup.snapshot import JobState, Refusal
from aibrix_operator.modelwarmup.targets import Missing, Target, resolve


def revision(**fields):
    written = spec("n1", **fields)
    return revision_of(ModelWarmupSpec.model_validate(written), written.get("custom") or {})


def with_memory(amount, *names):
    containers = [{"name": n, "image": "b", "resources": {"limits": {"memory": amount}}} for n in names or ("a", "b")]
    return {"custom": {"containers": containers, "volumes": [{"name": "v", "emptyDir": {"sizeLimit": amount}}]}}


@pytest.mark.acceptance("MW-12")
def test_the_revision_is_that_of_what_nodes_get():
    assert revision() == "ef7e2d9085ee"
    other = IMAGE | {"image": "alpine"}
    assert revision(imagePreload={"images": [IMAGE, other]}) == revision(imagePreload={"images": [other, IMAGE]})
    assert revision(policies={"parallelism": 3}) == revision()
    assert revision(imagePreload={"images": [IMAGE | {"args": ["-v"]}]}) != revision()
    assert revision(imagePreload={"images": [IMAGE], "pullSecrets": [{"name": "s"}]}) != revision()
    artifact = {"url": "hf://o/n", "path": "n"}
    assert revision(weights={"image": "i", "artifacts": [artifact]}) != revision()


def test_quantities_are_compared_and_the_order_of_custom_containers_counts():
    assert revision(**with_memory("1Gi")) == revision(**with_memory("1024Mi"))
    assert revision(**with_memory("1Gi")) != revision(**with_memory("2Gi"))
    assert revision(**with_memory("1Gi", "a", "b")) != revision(**with_memory("1Gi", "b", "a"))
    assert revision(**with_memory("no quantity")) != revision(**with_memory("1Gi"))


@pytest.mark.acceptance("MW-14")
def test_a_node_of_two_entries_is_one_target_of_its_first_source():
    both = [{"nodes": {"names": ["n1", "n1"]}}, {"nodeSelector": {"matchLabels": {"gpu": "h200"}}}]
    found = resolve(ModelWarmupSpec.model_validate(spec(targets=both)), "lat", {"n1": OPEN | {"gpu": "h200"}})
    assert found.targets == (Target("n1", "target[0]", 2),)


ROLE = "node-role.kubernetes.io/"
CLOSED = [
    pytest.param({}, "lat", id="no label"),
    pytest.param(OPEN | {"model.aibrix.ai/warmup-enabled": "True"}, "lat", id="another spelling of true"),
    pytest.param(OPEN | {"resource-pool.aibrix.ai/name": "other"}, "lat", id="another pool"),
    pytest.param(OPEN, "", id="a namespace without pool"),
    pytest.param(OPEN | {"resource-pool.aibrix.ai/name": ""}, "", id="two empty pools"),
    pytest.param(OPEN | {ROLE + "control-plane": ""}, "lat", id="a control plane"),
    pytest.param(OPEN | {ROLE + "master": "false"}, "lat", id="a role label of any value"),
]


@pytest.mark.acceptance("MW-15")
@pytest.mark.parametrize(("labels", "pool"), CLOSED)
def test_a_node_that_may_not_be_used_is_missing_also_where_a_selector_matched_it(labels, pool):
    labels = labels | {"gpu": "h200"}
    for target in ({"nodes": {"names": ["n1"]}}, {"nodeSelector": {"matchLabels": {"gpu": "h200"}}}):
        found = resolve(ModelWarmupSpec.model_validate(spec(targets=[target])), pool, {"n1": labels})
        assert (found.targets, found.missing) == ((), (Missing("n1", Reason.NODE_NOT_AUTHORIZED),))


@pytest.mark.acceptance("MW-29")
@pytest.mark.parametrize("name", ["w" * 63, "w" * 31 + ".-x", "a.b.c", "7b-chat", "x" * 253])
def test_the_name_of_a_job_fits_and_is_valid_and_no_two_clash(name):
    made = job_name(Ref("serving", name, "uid-1"), "n1", REVISION)
    assert len(made) <= 63
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", made)
    assert made != job_name(Ref("serving", name + "y", "uid-2"), "n1", REVISION)
    assert made != job_name(Ref("serving", name, "uid-1"), "n2", REVISION)


@pytest.mark.acceptance("MW-10")
def test_a_job_is_pinned_to_its_node_and_brings_nothing_else():
    made = job_of(warmup("n1"), "n1", REVISION)
    assert made["metadata"]["labels"] == {
        "model.aibrix.ai/warmup": REF.uid,
        "model.aibrix.ai/revision": REVISION,
    }
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("ModelWarmup", REF.uid, True)
    job_spec, pod = made["spec"], made["spec"]["template"]["spec"]
    assert (job_spec["backoffLimit"], job_spec["activeDeadlineSeconds"]) == (2, 1800)
    assert "ttlSecondsAfterFinished" not in job_spec
    assert "metadata" not in job_spec["template"]
    assert pod == {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "affinity": pod["affinity"],
        "containers": [
            {
                "name": "image-0",
                "image": "busybox",
                "command": ["true"],
                "imagePullPolicy": "IfNotPresent",
                "securityContext": {"allowPrivilegeEscalation": False},
            }
        ],
    }
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


@pytest.mark.acceptance("MW-11")
def test_custom_parts_are_kept_verbatim_and_pull_secrets_merged():
    custom = {
        "initContainers": [{"name": "fetch", "image": "f", "env": [{"name": "A", "value": "b"}]}],
        "containers": [{"name": "check", "image": "c", "volumeMounts": [{"name": "cache", "mountPath": "/c"}]}],
        "volumes": [{"name": "cache", "hostPath": {"path": "/c"}}],
        "imagePullSecrets": [{"name": "b"}, {"name": "c"}],
    }
    preload = {"images": [IMAGE], "pullSecrets": [{"name": "a"}, {"name": "b"}]}
    pod = job_of(warmup("n1", custom=custom, imagePreload=preload), "n1", "r")["spec"]["template"]["spec"]
    assert pod["initContainers"] == custom["initContainers"]
    assert pod["containers"][1:] == custom["containers"]
    assert pod["volumes"] == custom["volumes"]
    assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}, {"name": "c"}]


def test_weights_come_to_the_cache_of_the_node_and_a_refusal_ends_the_job():
    artifacts = [{"url": "hf://org/name", "path": "org/name"}, {"url": "/srv/model", "path": "local"}]
    weights = {"image": "ours", "artifacts": artifacts, "credentialsSecret": {"name": "token"}}
    made = job_of(warmup("n1", weights=weights, imagePreload=None), "n1", "r")
    pod = made["spec"]["template"]["spec"]
    first, second = pod["containers"]
    assert first["args"] == [
        *("fetch", "hf://org/name", "/weights/org/name", "--report", "/dev/termination-log"),
        *("--credentials", "/credentials"),
    ]
    assert {m["name"]: m.get("readOnly", False) for m in second["volumeMounts"]} == {
        "weights": False,
        "weights-credentials": True,
        "weights-source-1": True,
    }
    assert [v["name"] for v in pod["volumes"]] == ["weights", "weights-credentials", "weights-source-1"]
    assert made["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [42]


def nodes_of(steps, kind=Create):
    return [step.body["metadata"]["annotations"]["model.aibrix.ai/target-node"] for step in steps if type(step) is kind]


@pytest.mark.acceptance("MW-13")
def test_jobs_are_made_by_name_of_the_node_up_to_the_parallelism():
    steps, *_ = planned(warmup("n3", "n1", "n2", policies={"parallelism": 2}))
    assert nodes_of(steps) == ["n1", "n2"]
    steps, *_ = planned(warmup("n1", "n2", "n3", policies={"parallelism": 1}, jobs=(job("n1"),)))
    assert nodes_of(steps) == []
    done = (job("n1", JobState.SUCCEEDED), job("n2", JobState.FAILED))
    steps, *_ = planned(warmup("n1", "n2", "n3", policies={"parallelism": 1}, jobs=done))
    assert nodes_of(steps) == ["n3"]


def test_a_stale_job_is_deleted_and_takes_capacity_in_the_same_round_and_finished_ones_stay():
    stale = job("gone"), job("n1", revision="older0000000"), job("left", JobState.FAILED)
    steps, *_ = planned(warmup("n1", "n2", policies={"parallelism": 2}, jobs=stale))
    assert [step.ref.name for step in steps if isinstance(step, Delete)] == [stale[0].ref.name, stale[1].ref.name]
    assert nodes_of(steps) == []


def test_a_controlled_job_with_anothers_label_keeps_its_name_and_takes_no_capacity():
    of = warmup("n1", "n2", policies={"parallelism": 1})

    steps, status, *_ = planned(replace(of, taken=frozenset({job("n1").ref.name})))
    assert nodes_of(steps) == ["n2"]
    assert status.targets[0].phase == "Pending"


@pytest.mark.acceptance("MW-26")
def test_a_name_that_another_has_keeps_only_its_node_waiting():
    refusal = Refusal("n1", "it already exists and is not controlled by ModelWarmup", True)
    of = warmup("n1", "n2", policies={"parallelism": 1}, refusals=(refusal,))
    steps, status, notes, memory = planned(of)
    assert nodes_of(steps) == ["n2"]
    waiting = next(item for item in status.targets if item.node_name == "n1")
    assert (waiting.phase, waiting.reason) == ("Pending", "JobRefused")
    assert "not controlled by ModelWarmup" in waiting.message
    assert "JobRefused" in notes
    later = Moment(NOW.wall, NOW.monotonic_s + 1.5)
    steps, _, _, memory = planned(warmup("n1", "n2", jobs=(job("n2"),)), memory, later)
    assert nodes_of(steps) == ["n1"]
    _, status, _, memory = planned(warmup("n1", "n2", jobs=(job("n1"), job("n2"))), memory, later)
    assert not memory.refused
    assert [item.reason for item in status.targets] == ["", ""]


@pytest.mark.acceptance("MW-35")
def test_what_the_api_server_refuses_is_tried_again_later_and_later():
    memory, now, gaps = None, NOW, []
    refusal = Refusal("n1", "exceeded quota", False)
    for _ in range(9):
        of = warmup("n1", "n2", refusals=(refusal,))
        steps, status, _, memory = planned(of, memory, now)
        assert nodes_of(steps) == []
        assert all("exceeded quota" in item.message for item in status.targets)
        (refused,) = memory.refused.values()
        gaps.append(refused.until_s - now.monotonic_s)
        now = Moment(now.wall, refused.until_s)
        steps, _, _, memory = planned(warmup("n1", "n2"), memory, now)
        assert nodes_of(steps) == ["n1", "n2"]
    assert gaps == [1, 2, 4, 8, 16, 32, 60, 60, 60]

"""What is told of a warmup: its phase, its nodes, its conditions, and when they changed."""

from dataclasses import replace
from datetime import timedelta

import pytest
from warmup_builders import NOW, OPEN, REVISION, job, planned, warmup

from aibrix_operator.api.modelwarmup import ModelWarmupStatus, WarmupPhase
from aibrix_operator.controller.steps import Moment, Patch
from aibrix_operator.modelwarmup.decide import Memory, decide
from aibrix_operator.modelwarmup.snapshot import JobState, Report

DONE, FAILED = JobState.SUCCEEDED, JobState.FAILED


def in_force(status):
    return [(c.type, c.reason) for c in status.conditions if c.status == "True"]


PHASES = [
    pytest.param(("n1",), (), {}, "Running", "JobsRunning", id="nothing made yet"),
    pytest.param(("n1",), (job("n1"),), {}, "Running", "JobsRunning", id="one runs"),
    pytest.param(("n1", "x"), (job("n1"),), {"n1": OPEN}, "Running", "JobsRunning", id="one runs, one missing"),
    pytest.param(("n1",), (job("n1", DONE),), {}, "Succeeded", "ImagePreloadSucceeded", id="done"),
    pytest.param(("n1",), (job("n1", FAILED),), {}, "Failed", "NodeFailed", id="failed"),
    pytest.param(("n1", "n2"), (job("n1", DONE), job("n2", FAILED)), {}, "Degraded", "NodeFailed", id="both"),
    pytest.param(("x",), (), {"n1": OPEN}, "Failed", "NodeNotFound", id="only missing", marks=()),
    pytest.param(("n1", "x"), (job("n1", DONE),), {"n1": OPEN}, "Degraded", "NodeFailed", id="done and missing"),
]


@pytest.mark.parametrize(("names", "jobs", "nodes", "phase", "reason"), PHASES)
def test_the_phase_follows_from_the_nodes(names, jobs, nodes, phase, reason):
    _, status, _, _ = planned(warmup(*names, jobs=jobs, nodes=nodes or None))
    assert status.phase == phase
    if reason == "NodeNotFound":
        assert (status.targets[0].reason, status.targets[0].job_name) == (reason, "")
        reason = "NodeFailed"
    assert [found for _, found in in_force(status)] == [reason]
    assert {c.type for c in status.conditions} == {"Complete", "Progressing", "Degraded"}
    assert bool(status.completion_time) is (phase != "Running")


@pytest.mark.acceptance("MW-17")
def test_a_selector_that_matches_nothing_waits():
    selector = [{"nodeSelector": {"matchLabels": {"pool": "h200"}}}]
    _, status, _, _ = planned(warmup(targets=selector))
    assert (status.phase, in_force(status)) == ("Pending", [("Progressing", "NoTargetsResolved")])
    assert status.desired_nodes == 0


@pytest.mark.acceptance("MW-11")
def test_the_reason_of_success_says_whether_there_was_more_than_images():
    made = job("n1", DONE)
    custom = {"containers": [{"name": "a", "image": "b"}]}
    first, _, _, _ = planned(warmup("n1", custom=custom))
    name = first[0].body["metadata"]

    ours = replace(
        made,
        revision=name["labels"]["model.aibrix.ai/revision"],
        ref=replace(made.ref, name=name["name"]),
    )
    _, status, notes, _ = planned(warmup("n1", custom=custom, jobs=(ours,)))
    assert in_force(status) == [("Complete", "WarmupSucceeded")]
    assert notes == ["Started", "Succeeded"]


@pytest.mark.acceptance("MW-31")
def test_256_nodes_are_told_of_in_order_and_the_rest_is_counted():
    names = [f"n{i:03d}" for i in range(300)]
    jobs = tuple(job(n, FAILED, reason="BackoffLimitExceeded", message="é" * 600) for n in names)
    _, status, _, _ = planned(warmup(*names, jobs=jobs))
    assert [item.node_name for item in status.targets] == names[:256]
    assert status.omitted_target_details == 44
    assert status.targets[0].message == "é" * 512
    assert (status.failed_nodes, status.phase) == (300, "Failed")


def test_failed_nodes_come_first_then_those_that_run_then_those_that_wait():
    jobs = (job("n2"), job("n3", FAILED))
    _, status, _, _ = planned(warmup("n1", "n2", "n3", policies={"parallelism": 1}, jobs=jobs))
    assert [(i.node_name, i.phase) for i in status.targets] == [("n3", "Failed"), ("n2", "Running"), ("n1", "Pending")]
    assert status.progress == "0/3"


@pytest.mark.acceptance("MW-32")
def test_more_than_1000_nodes_are_refused_before_any_job():
    nodes = {f"n{i}": OPEN for i in range(1001)}
    of = warmup(targets=[{"nodeSelector": {"matchLabels": OPEN}}], nodes=nodes)
    steps, status, notes, _ = planned(of)
    assert steps == []
    assert (status.phase, status.desired_nodes) == ("Failed", 1001)
    assert in_force(status) == [("Degraded", "TargetLimitExceeded")]
    condition = next(c for c in status.conditions if c.type == "Degraded")
    assert condition.message == "resolved 1001 targets; maximum is 1000"
    assert notes == ["TargetLimitExceeded"]


@pytest.mark.acceptance("MW-34")
def test_times_move_only_where_what_they_date_does():
    _, first, _, _ = planned(warmup("n1", "n2", jobs=(job("n1"), job("n2"))))
    later = Moment(NOW.wall + timedelta(minutes=5), 400.0)
    changed = warmup("n1", "n2", jobs=(job("n1"), job("n2", FAILED)), status=first)
    _, second, _, _ = planned(changed, now=later)
    times = {item.node_name: item.last_transition_time for item in second.targets}
    assert times == {"n1": "2026-01-01T12:00:00Z", "n2": "2026-01-01T12:05:00Z"}
    assert {c.last_transition_time for c in second.conditions} == {"2026-01-01T12:00:00Z"}
    assert second.start_time == first.start_time
    plan, _ = decide(warmup("n1", "n2", jobs=changed.jobs, status=second), Memory(), Moment(later.wall, 900.0))
    assert plan.steps[-1].status == second.to_object()


@pytest.mark.acceptance("MW-21")
def test_what_is_over_only_gets_the_time_to_live_of_its_jobs():
    over = ModelWarmupStatus(phase=WarmupPhase.DEGRADED)
    jobs = (job("n1", DONE), job("n2", FAILED, has_ttl=True), job("left", DONE), job("n3", DONE, revision="older"))
    plan, _ = decide(
        warmup("n1", "n2", "n9", jobs=jobs, status=over, policies={"ttlSecondsAfterFinished": 7}), Memory(), NOW
    )
    assert [(type(step), step.ref.name, step.patch) for step in plan.steps] == [
        (Patch, jobs[i].ref.name, {"spec": {"ttlSecondsAfterFinished": 7}}) for i in (0, 2)
    ]
    assert not plan.notes


def test_what_containers_report_is_summed_and_tells_why_a_node_failed():
    reports = (Report(700), Report(300, "NoRoom", "needs 2 TB, the disk has 1 TB free"))
    jobs = (job("n1", FAILED, reason="PodFailurePolicy", message="exit code 42", reports=reports), job("n2", DONE))
    _, status, _, _ = planned(warmup("n1", "n2", jobs=jobs))
    assert status.fetched_bytes == 1000
    assert (status.targets[0].reason, status.targets[0].message) == ("NoRoom", "needs 2 TB, the disk has 1 TB free")


def test_a_job_that_says_nothing_failed_all_the_same():
    _, status, _, _ = planned(warmup("n1", jobs=(job("n1", FAILED),)))
    assert (status.targets[0].reason, status.targets[0].message) == ("JobFailed", "warmup job failed")


def test_newly_failed_nodes_are_told_once():
    jobs = (job("n1", FAILED), job("n2"))
    _, status, notes, _ = planned(warmup("n1", "n2", jobs=jobs))
    assert notes == ["Started", "NodeFailed"]
    _, _, notes, _ = planned(warmup("n1", "n2", jobs=jobs, status=status))
    assert notes == []


def test_a_spec_that_cannot_be_read_ends_the_warmup_with_the_reason():

    of = replace(warmup("n1"), spec=None, problem="spec.targets cannot be read: missing")
    steps, status, notes, _ = planned(of)
    assert (steps, status.phase, in_force(status)) == ([], "Failed", [("Degraded", "InvalidSpec")])
    assert notes == ["InvalidSpec"]
    plan, _ = decide(replace(of, status=status), Memory(), NOW)
    assert plan.steps == ()


def test_the_revision_that_was_looked_at_is_told():
    _, status, _, _ = planned(warmup("n1"))
    assert status.observed_revision == REVISION

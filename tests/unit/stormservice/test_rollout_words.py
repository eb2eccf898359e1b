"""What ``rollout status``, ``history``, ``undo``, ``pause`` and ``resume`` say."""

from __future__ import annotations

import copy

import pytest
from storm_cluster import role, storm

from aibrix_operator.stormservice import rollout_words
from aibrix_operator.stormservice.rollout_words import CannotRoll
from aibrix_operator.stormservice.seen import Revision, StormService

DONE = {
    "observedGeneration": 2,
    "replicas": 2,
    "readyReplicas": 2,
    "updatedReplicas": 2,
    "updatedReadyReplicas": 2,
    "currentRevision": "pd-b",
    "updateRevision": "pd-b",
}


def body(status=None, **spec):
    made = copy.deepcopy(storm("pd", role("a", 1, image="engine:2"), replicas=2, **spec))
    made["metadata"] |= {"generation": 2, "uid": "u", "namespace": "default"}
    return {**made, "status": {**DONE, **(status or {})}}


def condition(type_, status="True", reason="", message=""):
    return {"type": type_, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        pytest.param({"observedGeneration": 1}, "spec update to be observed", id="not seen yet"),
        pytest.param({"updatedReplicas": 1}, "1 out of 2 new replicas have been updated", id="some are old"),
        pytest.param({"replicas": 3}, "1 old replicas are pending termination", id="one too many"),
        pytest.param({"updatedReadyReplicas": 1}, "1 of 2 updated replicas are ready", id="one is not ready"),
        pytest.param({"currentRevision": "pd-a"}, "2 of 2 updated replicas are ready", id="old ones are still there"),
        pytest.param({"conditions": [condition("ReplicaFailure", message="no quota")]}, "no quota", id="refused"),
    ],
)
def test_an_update_that_is_not_over_says_what_it_waits_for(status, said):
    progress = rollout_words.progress(body(status))
    assert said in progress.message
    assert not progress.is_done
    assert not progress.has_failed


def test_an_update_that_is_over_says_so():
    assert rollout_words.progress(body()) == rollout_words.Progress(
        'stormservice "pd" successfully rolled out', is_done=True
    )


def test_a_missed_deadline_is_a_failure_with_its_reason():
    conditions = [
        condition("Progressing", "False", "ProgressDeadlineExceeded"),
        condition("ReplicaFailure", message="q"),
    ]
    progress = rollout_words.progress(body({"conditions": conditions}))
    assert progress.has_failed
    assert progress.message == 'error: stormservice "pd" exceeded its progress deadline: q'


def revision(number, image):
    template = body()["spec"]["template"]
    template["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"] = image
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    return Revision({"metadata": {"name": f"pd-{'xab'[number]}", "uid": str(number)}, "data": data, "revision": number})


REVISIONS = [revision(2, "engine:2"), revision(1, "engine:1")]


def test_history_is_told_oldest_first_with_images():
    told = rollout_words.history(StormService(body()), REVISIONS)
    assert [(e.number, e.name, e.images, e.mark) for e in told] == [
        (1, "pd-a", "a=engine:1", ""),
        (2, "pd-b", "a=engine:2", "current"),
    ]
    moving = rollout_words.history(StormService(body({"currentRevision": "pd-a"})), REVISIONS)
    assert [e.mark for e in moving] == ["current", "update"]


@pytest.mark.parametrize("number", [0, 1])
def test_undo_brings_the_earlier_template_back_and_nothing_else(number):
    before = body()
    changed, said = rollout_words.undone(StormService(before), REVISIONS, number)
    assert said.endswith("rolled back")
    assert changed["spec"] == {**before["spec"], "template": REVISIONS[1].template}
    assert "$patch" not in changed["spec"]["template"]


def test_undo_to_the_present_template_changes_nothing():
    assert rollout_words.undone(StormService(body()), REVISIONS, 2)[0] is None


@pytest.mark.parametrize(
    ("made", "revisions", "number", "said"),
    [
        pytest.param(body(paused=True), REVISIONS, 1, "resume it first", id="paused"),
        pytest.param(body(), REVISIONS, 7, "unable to find revision 7: there are 1, 2", id="no such revision"),
        pytest.param(body(), REVISIONS[:1], 0, "no rollout history", id="nothing before"),
    ],
)
def test_what_cannot_be_undone_is_refused(made, revisions, number, said):
    with pytest.raises(CannotRoll, match=said):
        rollout_words.undone(StormService(made), revisions, number)


def test_pause_and_resume_are_refused_where_they_change_nothing():
    assert rollout_words.paused(StormService(body()), True)[0] == {"spec": {"paused": True}}
    assert rollout_words.paused(StormService(body(paused=True)), False)[0] == {"spec": {"paused": False}}
    with pytest.raises(CannotRoll, match="already paused"):
        rollout_words.paused(StormService(body(paused=True)), True)
    with pytest.raises(CannotRoll, match="not paused"):
        rollout_words.paused(StormService(body()), False)

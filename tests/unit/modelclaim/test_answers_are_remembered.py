"""What the answer of a runtime changes in memory, and which answers change nothing."""

import dataclasses

import pytest
from builders import make_claim, make_draft, make_pod, make_snapshot

from aibrix_operator.modelclaim import outcomes, waking
from aibrix_operator.modelclaim.draft import pod_ref
from aibrix_operator.modelclaim.memory import CardMemory, ClaimMemory, LimitWrite, WakeRequest
from aibrix_operator.modelclaim.snapshot import Finished
from aibrix_operator.modelclaim.starting import activate_request
from aibrix_operator.modelclaim.steps import Activate, SetLimits
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import Done, NotSent, Refused, Unknown
from aibrix_operator.runtime_api.wire import EnginePhase

POD = make_pod(snapshot=make_snapshot())
REQUEST = WakeRequest(POD.uid, "2026-01-01T00:00:00Z", 0.0, is_granted=True, sent_s=1.0)


def answer(applied):
    phase = EnginePhase.ACTIVE
    return Done(wire.OperationResponse(model_name="a", operation_id="op", applied=applied, phase=phase))


def fold(step, result, *pods, claims=None):
    claim = make_claim(is_writing=True)  # its record is under way, so nothing of it is carried out yet
    draft = make_draft(claim, *pods, claims=claims)
    draft.fleet = dataclasses.replace(draft.fleet, finished=(Finished(step, result),))
    outcomes.fold(draft)
    return draft


def start(pod=POD):
    return Activate(pod_ref(pod), "uid-of-a", activate_request(make_claim()))


@pytest.mark.parametrize("pods", [pytest.param([], id="gone"), pytest.param([make_pod(uid="next")], id="a namesake")])
def test_a_runtime_that_was_left_alone_is_remembered_only_of_the_pod_it_was(pods):
    draft = fold(start(), NotSent("left alone", left_alone=True), *pods)
    assert draft.claims["uid-of-a"].passed_over == {POD.uid}
    assert draft.cards == {}
    draft = fold(start(), NotSent("left alone", left_alone=True), POD)
    assert draft.cards[POD.uid] == CardMemory(unasked="left alone", unasked_until_s=10.0)


@pytest.mark.parametrize("result", [NotSent("no route"), Refused("no", 400)])
def test_a_start_known_not_done_takes_its_record_back(result):
    draft = fold(start(), result, POD)
    assert draft.claims["uid-of-a"].refused_on == {POD.uid: result.message}
    assert draft.claims["uid-of-a"].wait.tries == 1


def test_a_start_refused_to_an_engine_that_ran_says_so():
    draft = fold(start(), Refused("no", 400), POD, claims={"a": ClaimMemory(started_on=frozenset({POD.uid}))})
    text = "model a had no engine on pod warm-0, and starting one failed: no"
    assert draft.claims["uid-of-a"].refused_on == {POD.uid: text}


def test_a_start_that_may_be_under_way_is_repeated_after_a_round():
    draft = fold(start(), Unknown("cut"), POD)
    assert draft.claims["uid-of-a"].start_again_s == draft.wake_at_s == 10.0


def test_an_engine_that_ran_and_cannot_be_called_is_started_again_after_a_round():
    draft = fold(start(), NotSent("no route"), POD, claims={"a": ClaimMemory(started_on=frozenset({POD.uid}))})
    assert draft.claims["uid-of-a"].start_again_s == draft.wake_at_s == 10.0


def test_the_words_of_a_failed_limit_are_kept_for_the_claim_that_waits_for_it():
    step = SetLimits(pod_ref(POD), ())
    write = LimitWrite(POD.uid, 100, 200, 0.0, 1)
    draft = fold(step, Refused("too low", 409), POD, claims={"a": ClaimMemory(limit_write=write)})
    assert draft.claims["uid-of-a"].limit_write.error == "too low"
    assert fold(step, answer(True), POD).claims == {}
    assert fold(step, Refused("too low", 409), POD).claims == {}


def woken(result, request=REQUEST, pod=POD):
    draft = make_draft(make_claim(), POD, claims={"a": ClaimMemory(wake_request=request)})
    waking.came_of_wake(draft.fleet.claims[0], pod_ref(pod), result, draft)
    return draft.claims["uid-of-a"].wake_request, [note.reason for _, note in draft.notes]


@pytest.mark.parametrize(
    ("result", "changes", "told"),
    [
        pytest.param(answer(True), {"is_done": True}, ["Waking"], id="woken"),
        pytest.param(answer(False), {"is_done": True}, [], id="was woken before"),
        pytest.param(Refused("no", 409), {"refusal": "no"}, [], id="refused"),
        pytest.param(Refused("", 409), {"refusal": "refused"}, [], id="refused without a word"),
        pytest.param(Unknown("cut"), {}, [], id="asked again"),
    ],
)
def test_what_came_of_a_wake(result, changes, told):
    assert woken(result) == (dataclasses.replace(REQUEST, **changes), told)


def test_a_wake_that_was_answered_late_belongs_to_another_request():
    assert woken(answer(True), pod=make_pod("warm-1")) == (REQUEST, [])
    assert woken(answer(True), request=None) == (None, [])

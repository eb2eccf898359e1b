"""A division's next step: shrink, see it, record downs, record ups, grow."""

import dataclasses

import pytest
from builders import make_claim, make_engine, make_fleet, make_instance, make_pod, make_snapshot

from aibrix_operator.modelclaim import dividing
from aibrix_operator.modelclaim.accounts import open_accounts
from aibrix_operator.modelclaim.memory import Cause, Stage
from aibrix_operator.runtime_api.wire import EnginePhase


def account(**engines):
    """``name=(limit in force, record)`` or ``(limit in force, record, mapped)``, on one card of 1000 bytes."""
    claims = [make_claim(name, make_instance(limit=figures[1])) for name, figures in engines.items()]
    models = [
        make_engine(name, limit=figures[0], mapped=figures[2] if len(figures) > 2 else 0)
        for name, figures in engines.items()
    ]
    return open_accounts(make_fleet(make_pod("warm-0", make_snapshot(*models)), *claims))["warm-0"]


def division(stage=Stage.SHRINKING, *, targets, before=None, shrunk=None, newcomer=""):
    start = dividing.plan(account(a=(1, 1)), Cause.ROUND, targets, newcomer)
    return dataclasses.replace(start, stage=stage, before=before or {}, shrunk=shrunk or {})


def test_what_shrinks_is_sent_first_and_alone():
    now = account(a=(400, 400), b=(100, 100))
    progress = dividing.begin(now, dividing.plan(now, Cause.ROUND, {"a": 167, "b": 433}))
    assert (progress.writes, progress.records) == ({"a": 167}, {})
    assert progress.division.stage is Stage.SHRINKING


def test_an_engine_without_a_segment_is_skipped_and_recorded_all_the_same():
    now = account(a=(-1, 400))
    progress = dividing.begin(now, dividing.plan(now, Cause.ROUND, {"a": 167}))
    assert (progress.writes, progress.records) == ({}, {"a": 167})


@pytest.mark.parametrize(
    ("now", "failure"),
    [
        pytest.param(account(a=(400, 400)), "a did not take a KV limit of 0.0 GiB", id="not taken"),
        pytest.param(account(a=(166, 400)), "a did not take a KV limit of 0.0 GiB", id="another value"),
        pytest.param(account(a=(167, 400, 168)), "a holds 0.0 GiB, past the 0.0 GiB it was given", id="grown"),
        pytest.param(account(b=(100, 100)), "a is no longer on this card", id="gone"),
    ],
)
def test_a_shrink_that_is_not_read_back_fails_the_division(now, failure):
    progress = dividing.advance(now, division(targets={"a": 167}, before={"a": 400}, shrunk={"a": 167}))
    assert progress.failure == failure
    assert progress.division is None
    assert progress.records == {}


def test_what_was_shrunk_goes_back_as_far_as_its_record_allows():
    now = account(a=(167, 300, 400), b=(120, 0))
    shrunk = division(targets={"a": 167, "b": 100}, before={"a": 400, "b": 300}, shrunk={"a": 167, "b": 100})
    assert dividing.advance(now, shrunk).writes == {"a": 300, "b": 300}


def test_who_was_shrunk_to_more_than_its_record_is_given_nothing_back():
    """It booted under the default limit, and its record arrived late, below what the division was about to record."""
    shrunk = division(targets={"a": 500, "b": 100}, before={"a": 1000, "b": 300}, shrunk={"a": 500, "b": 100})
    progress = dividing.advance(account(a=(450, 450), b=(100, 300)), shrunk)
    assert (progress.failure, progress.writes) == ("a did not take a KV limit of 0.0 GiB", {"b": 300})


def test_records_that_go_down_are_due_before_those_that_go_up_whatever_is_in_force():
    now = account(a=(300, 600), b=(100, 100))
    recording = division(Stage.RECORDING, targets={"a": 400, "b": 400})
    assert dividing.advance(now, recording).records == {"a": 400}
    assert dividing.advance(account(a=(300, 400), b=(100, 100)), recording).records == {"b": 400}


def test_a_record_that_may_be_higher_than_it_is_seen_is_due_before_those_that_go_up_and_after_those_that_go_down():
    """The answer to a write of 600 was lost, and its watch is late."""
    recording = division(Stage.RECORDING, targets={"a": 300, "b": 300, "c": 300})

    def now(**records):
        claims = [make_claim(name, make_instance(limit=record)) for name, record in records.items()]
        claims[0] = dataclasses.replace(claims[0], unsure_instances=(make_instance(limit=600),))
        models = [make_engine(name, limit=100) for name in records]
        return open_accounts(make_fleet(make_pod("warm-0", make_snapshot(*models)), *claims))["warm-0"]

    assert dividing.advance(now(a=100, b=100, c=500), recording).records == {"c": 300}
    assert dividing.advance(now(a=100, b=100, c=300), recording).records == {"a": 300}
    elsewhere = account(a=(100, 100), b=(100, 100), c=(100, 300))
    assert dividing.advance(elsewhere, recording).records == {"a": 300, "b": 300}


def test_who_is_above_its_target_again_before_its_record_is_written_fails_the_division():
    """Its engine was started anew while the API server refused the status, and is held to nothing any more."""
    recording = division(Stage.RECORDING, targets={"a": 200, "new": 200}, before={"a": 600}, shrunk={"a": 200})
    progress = dividing.advance(account(a=(900, 600)), recording)
    assert (progress.failure, progress.records) == ("a is no longer held to 0.0 GiB", {})
    assert (progress.division, progress.writes) == (None, {"a": 600})
    late = dividing.advance(account(a=(900, 200)), recording)
    assert (late.failure, late.records, late.writes) == (progress.failure, {}, {"a": 200})


@pytest.mark.parametrize("state", [{"phase": EnginePhase.BOOTING, "ready": False}, {"alive": False, "ready": False}])
def test_who_boots_or_is_dead_is_recorded_without_a_limit_in_force(state):
    pod = make_pod("warm-0", make_snapshot(make_engine("a", limit=900, **state)))
    now = open_accounts(make_fleet(pod, make_claim("a", make_instance(limit=600))))["warm-0"]
    assert dividing.advance(now, division(Stage.RECORDING, targets={"a": 200})).records == {"a": 200}


def test_a_newcomer_is_recorded_with_what_goes_up():
    recording = division(Stage.RECORDING, targets={"a": 200, "new": 200}, newcomer="new")
    assert dividing.advance(account(a=(200, 600)), recording).records == {"a": 200}
    assert dividing.advance(account(a=(200, 200)), recording).records == {"new": 200}


def test_limits_grow_once_all_is_recorded_and_then_the_division_is_over():
    now = account(a=(167, 167), b=(100, 433))
    progress = dividing.advance(now, division(Stage.RECORDING, targets={"a": 167, "b": 433}))
    assert (progress.writes, progress.division.stage) == ({"b": 433}, Stage.GROWING)
    assert dividing.advance(now, progress.division).is_done


def test_with_everything_as_planned_there_is_nothing_to_do():
    now = account(a=(167, 167), b=(433, 433))
    assert dividing.begin(now, dividing.plan(now, Cause.ROUND, {"a": 167, "b": 433})).is_done

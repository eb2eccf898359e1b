"""How long an engine counts as idle: since the latest of its activity, its phase and its claim's becoming Ready."""

from datetime import timedelta

import pytest
from builders import NOW, make_claim, make_draft, make_engine, make_instance, make_pod, make_snapshot

from aibrix_operator.api.conditions import Condition, rfc3339
from aibrix_operator.modelclaim import activity
from aibrix_operator.modelclaim.memory import Activity

LATER_S = 100.0


def ago(seconds):
    """So long before the look at ``LATER_S``."""
    return NOW + timedelta(seconds=LATER_S - seconds)


def ready(status="True", since_s=80.0):
    return Condition(type="Ready", status=status, last_transition_time=rfc3339(ago(since_s)), reason="ModelClaimActive")


def idle_s(engine, conditions, busy_s):
    claim = make_claim("a", make_instance(), conditions=conditions)
    snapshot = make_snapshot(*([] if engine is None else [engine])).model_copy(update={"observed_at": ago(0)})
    draft = make_draft(claim, make_pod(snapshot=snapshot), now_s=LATER_S)
    account = draft.accounts["warm-0"]
    if engine is not None and busy_s is not None:
        draft.activities[activity.key_of(account.pod.uid, engine)] = Activity(busy_s, None)
    return activity.idle_s(account, account.sittings[0], draft)


@pytest.mark.parametrize(
    ("phase_s", "ready_s", "busy_s", "idle"),
    [
        pytest.param(95.0, 80.0, 40.0, 60.0, id="busy last"),
        pytest.param(30.0, 80.0, 10.0, 30.0, id="changed its phase last"),
        pytest.param(95.0, 20.0, 10.0, 20.0, id="its claim became Ready last"),
        pytest.param(-5.0, 80.0, 10.0, 0.0, id="a phase dated in the future"),
    ],
)
def test_idle_time_counts_from_the_latest_sign_of_life(phase_s, ready_s, busy_s, idle):
    assert idle_s(make_engine(last_transition=ago(phase_s)), [ready(since_s=ready_s)], busy_s) == idle


@pytest.mark.parametrize(
    ("engine", "conditions", "busy_s"),
    [
        pytest.param(None, [ready()], 10.0, id="no engine"),
        pytest.param(make_engine(last_transition=None), [ready()], 10.0, id="undated"),
        pytest.param(make_engine(last_transition=ago(90)), [ready()], None, id="never looked at"),
        pytest.param(make_engine(last_transition=ago(90)), [ready("False")], 10.0, id="its claim is not Ready"),
        pytest.param(make_engine(last_transition=ago(90)), [], 10.0, id="no condition yet"),
    ],
)
def test_what_is_not_known_is_no_idleness(engine, conditions, busy_s):
    assert idle_s(engine, conditions, busy_s) == 0.0


def test_an_engine_that_is_gone_has_no_idle_time_to_start_anew():
    draft = make_draft(make_claim("a", make_instance()), make_pod(snapshot=make_snapshot()))
    account = draft.accounts["warm-0"]
    activity.busy_now(account, account.sittings[0], draft)
    assert draft.activities == {}

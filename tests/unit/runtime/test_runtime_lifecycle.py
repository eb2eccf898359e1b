"""The engine's life cycle: every phase under every sight, the restart schedule, and taking over after a restart."""

from dataclasses import replace
from datetime import timedelta

import pytest
from engine_records import BEFORE, NOW, PROCESS, make_record
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.runtime import lifecycle
from aibrix_operator.runtime.lifecycle import Adoption, Order, Sight, Step
from aibrix_operator.runtime.records import EngineProcess
from aibrix_operator.runtime_api.wire import EnginePhase

GRACE = timedelta(seconds=30)
BOOTING, ACTIVE, SLEEPING = EnginePhase.BOOTING, EnginePhase.ACTIVE, EnginePhase.SLEEPING
RESTARTING, FAILED, STOPPING = EnginePhase.RESTARTING, EnginePhase.FAILED, EnginePhase.STOPPING
READY, UNREADY, ASLEEP, REMAINS, GONE = Sight.READY, Sight.UNREADY, Sight.ASLEEP, Sight.REMAINS, Sight.GONE
DUE = NOW - timedelta(seconds=1)
NOT_DUE = NOW + timedelta(seconds=1)


def saw(record, sight):
    return lifecycle.saw(record, sight, NOW, GRACE)


@pytest.mark.parametrize(
    ("phase", "sight", "expected", "order"),
    [
        (BOOTING, READY, ACTIVE, None),
        (BOOTING, UNREADY, BOOTING, None),
        (BOOTING, ASLEEP, SLEEPING, None),
        (BOOTING, REMAINS, RESTARTING, Order.END_GROUP),
        (BOOTING, GONE, RESTARTING, None),
        (ACTIVE, READY, ACTIVE, None),
        (ACTIVE, UNREADY, BOOTING, None),
        (ACTIVE, ASLEEP, SLEEPING, None),
        (ACTIVE, REMAINS, RESTARTING, Order.END_GROUP),
        (ACTIVE, GONE, RESTARTING, None),
        (SLEEPING, READY, ACTIVE, None),
        (SLEEPING, UNREADY, SLEEPING, None),
        (SLEEPING, ASLEEP, SLEEPING, None),
        (SLEEPING, REMAINS, RESTARTING, Order.END_GROUP),
        (SLEEPING, GONE, RESTARTING, None),
        (RESTARTING, READY, ACTIVE, None),
        (RESTARTING, UNREADY, BOOTING, None),
        (RESTARTING, ASLEEP, SLEEPING, None),
        (RESTARTING, REMAINS, RESTARTING, Order.KILL_GROUP),
        (RESTARTING, GONE, RESTARTING, Order.LAUNCH),
        (FAILED, READY, FAILED, Order.KILL_GROUP),
        (FAILED, UNREADY, FAILED, Order.KILL_GROUP),
        (FAILED, ASLEEP, FAILED, Order.KILL_GROUP),
        (FAILED, REMAINS, FAILED, Order.KILL_GROUP),
        (FAILED, GONE, FAILED, None),
        (STOPPING, READY, STOPPING, Order.KILL_GROUP),
        (STOPPING, UNREADY, STOPPING, Order.KILL_GROUP),
        (STOPPING, ASLEEP, STOPPING, Order.KILL_GROUP),
        (STOPPING, REMAINS, STOPPING, Order.KILL_GROUP),
        (STOPPING, GONE, STOPPING, Order.DROP),
    ],
)
def test_every_phase_answers_every_sight(phase, sight, expected, order):
    step = saw(make_record(phase), sight)
    assert (step.record.phase, step.order) == (expected, order)


def test_the_table_has_no_hole():
    assert {phase: set(rules) for phase, rules in lifecycle.ON_SIGHT.items()} == {
        phase: set(Sight) for phase in EnginePhase
    }


def test_an_engine_in_its_phase_is_left_as_it_is():
    for phase, sight in ((BOOTING, UNREADY), (ACTIVE, READY), (SLEEPING, UNREADY), (SLEEPING, ASLEEP)):
        assert saw(make_record(phase), sight) == Step(make_record(phase))


def test_becoming_active_clears_the_error_and_dates_the_change():
    record = make_record(BOOTING, last_error="engine exited", restart_count=2)
    assert saw(record, READY).record == make_record(ACTIVE, last_transition=NOW, restart_count=2)


def test_an_active_engine_with_an_old_error_loses_it_without_a_change_of_phase():
    assert saw(make_record(ACTIVE, last_error="x"), READY).record == make_record(ACTIVE)


def test_restarts_come_after_2_4_8_16_and_32_seconds_and_the_sixth_death_is_the_last():
    record, delays = make_record(ACTIVE), []
    for _ in range(5):
        dead = saw(record, GONE).record
        delays.append((dead.next_restart_at - NOW).total_seconds())
        record = lifecycle.launched(dead, PROCESS, NOW)
    assert delays == [2, 4, 8, 16, 32]
    failed = saw(record, GONE).record
    assert (failed.phase, failed.restart_count, failed.next_restart_at) == (FAILED, 5, None)
    assert failed.last_error == "engine exited; restart budget exhausted"
    assert saw(failed, GONE) == Step(failed)


def test_a_death_says_so_and_forgets_the_footprint():
    record = make_record(SLEEPING, sleeping_footprint_bytes=7)
    assert saw(record, GONE).record == make_record(
        RESTARTING,
        last_transition=NOW,
        last_error="engine exited",
        restart_count=1,
        next_restart_at=NOW + timedelta(seconds=2),
        process=None,
    )


def test_a_process_whose_group_lives_on_stays_known():
    assert saw(make_record(ACTIVE), REMAINS).record.process == PROCESS


@pytest.mark.parametrize(("due", "order"), [(DUE, Order.LAUNCH), (NOW, Order.LAUNCH), (NOT_DUE, None)])
def test_a_relaunch_waits_until_it_is_due(due, order):
    assert saw(make_record(RESTARTING, next_restart_at=due), GONE).order == order


def test_a_due_relaunch_waits_for_the_old_group():
    assert saw(make_record(RESTARTING, next_restart_at=DUE), REMAINS).order == Order.KILL_GROUP


def test_a_relaunch_that_fails_counts_as_another_death():
    record = make_record(RESTARTING, restart_count=1, next_restart_at=DUE, process=None)
    again = lifecycle.relaunch_failed(record, "no python", NOW)
    assert again == replace(
        record,
        restart_count=2,
        last_error="restart launch failed: no python",
        next_restart_at=NOW + timedelta(seconds=4),
    )
    assert lifecycle.relaunch_failed(replace(again, restart_count=5), "no python", NOW).phase is FAILED


def test_the_delay_never_passes_a_minute():
    assert lifecycle.restart_delay(9) == timedelta(seconds=60)


def test_stop_of_a_running_engine_ends_its_group_and_waits():
    step = lifecycle.stop_asked(make_record(SLEEPING, sleeping_footprint_bytes=7), NOW, is_gone=False)
    assert step == Step(make_record(STOPPING, last_transition=NOW), Order.END_GROUP)


def test_stop_again_does_not_renew_the_grace():
    first = make_record(STOPPING)
    assert lifecycle.stop_asked(first, NOW, is_gone=False) == Step(first, Order.END_GROUP)


def test_stop_of_a_dead_engine_drops_it_at_once():
    assert lifecycle.stop_asked(make_record(RESTARTING), NOW, is_gone=True).order == Order.DROP


@pytest.mark.parametrize(
    ("age_s", "order"), [(0, Order.END_GROUP), (29.9, Order.END_GROUP), (30, Order.KILL_GROUP), (99, Order.KILL_GROUP)]
)
@pytest.mark.parametrize("sight", [READY, UNREADY, REMAINS])
def test_a_stopping_engine_is_asked_again_and_killed_after_its_grace(sight, age_s, order):
    record = make_record(STOPPING, last_transition=NOW - timedelta(seconds=age_s))
    assert saw(record, sight) == Step(record, order)


def test_a_stop_that_could_not_be_sent_is_noted_with_its_time():
    record = lifecycle.stop_failed(make_record(STOPPING), "not permitted", NOW)
    assert record == make_record(STOPPING, last_error="stop failed: not permitted", last_transition=NOW)


def test_sleep_wake_and_a_failed_wake():
    asleep = lifecycle.slept(make_record(ACTIVE), 7, NOW)
    assert asleep == make_record(SLEEPING, last_transition=NOW, sleeping_footprint_bytes=7)
    assert lifecycle.woke(asleep, NOW) == make_record(BOOTING, last_transition=NOW)
    assert lifecycle.wake_failed(asleep) == replace(asleep, sleeping_footprint_bytes=None)


def test_a_stopping_engine_that_still_falls_asleep_goes_all_the_same():
    assert lifecycle.slept(make_record(STOPPING), 7, NOW) == make_record(STOPPING)


@pytest.mark.parametrize(
    ("record", "sight", "adoption", "expected", "order"),
    [
        pytest.param(make_record(FAILED), GONE, Adoption.TERMINAL, FAILED, None, id="failed"),
        pytest.param(make_record(FAILED), REMAINS, Adoption.TERMINAL, FAILED, Order.KILL_GROUP, id="failed-remains"),
        pytest.param(make_record(FAILED), UNREADY, Adoption.TERMINAL, FAILED, Order.KILL_GROUP, id="failed-runs"),
        pytest.param(
            make_record(STOPPING, last_transition=NOW), UNREADY, Adoption.STOPPING, STOPPING, Order.END_GROUP, id="stop"
        ),
        pytest.param(
            make_record(STOPPING, last_transition=NOW), REMAINS, Adoption.STOPPING, STOPPING, Order.END_GROUP, id="tail"
        ),
        pytest.param(make_record(STOPPING), GONE, Adoption.REMOVED, STOPPING, Order.DROP, id="stopped"),
        pytest.param(make_record(ACTIVE), READY, Adoption.SUCCESS, ACTIVE, None, id="active"),
        pytest.param(make_record(ACTIVE), UNREADY, Adoption.SUCCESS, BOOTING, None, id="not-ready"),
        pytest.param(make_record(BOOTING), READY, Adoption.SUCCESS, ACTIVE, None, id="became-ready"),
        pytest.param(make_record(RESTARTING), UNREADY, Adoption.SUCCESS, BOOTING, None, id="relaunched"),
        pytest.param(make_record(SLEEPING), UNREADY, Adoption.SUCCESS, SLEEPING, None, id="asleep"),
        pytest.param(make_record(ACTIVE), GONE, Adoption.RESTART_SCHEDULED, RESTARTING, None, id="died"),
        pytest.param(make_record(SLEEPING), GONE, Adoption.RESTART_SCHEDULED, RESTARTING, None, id="died-asleep"),
        pytest.param(make_record(ACTIVE), REMAINS, Adoption.RESTART_SCHEDULED, RESTARTING, Order.END_GROUP, id="half"),
        pytest.param(
            make_record(ACTIVE, restart_count=5), GONE, Adoption.RESTART_SCHEDULED, FAILED, None, id="budget-spent"
        ),
    ],
)
def test_stored_engines_are_taken_over_as_they_are_seen(record, sight, adoption, expected, order):
    result, step = lifecycle.adopt(record, sight, NOW, GRACE)
    assert (result, step.record.phase, step.order) == (adoption, expected, order)


def test_taking_over_keeps_what_clients_know():
    record = make_record(SLEEPING, restart_count=3, sleeping_footprint_bytes=7)
    assert lifecycle.adopt(record, UNREADY, NOW, GRACE)[1].record == record


def test_taking_over_keeps_the_time_of_a_restart_that_was_due_already():
    record = make_record(RESTARTING, restart_count=2, next_restart_at=NOT_DUE)
    assert lifecycle.adopt(record, GONE, NOW, GRACE)[1].record == record
    lost = lifecycle.adopt(replace(record, next_restart_at=None), GONE, NOW, GRACE)[1].record
    assert (lost.restart_count, lost.next_restart_at) == (3, NOW + timedelta(seconds=8))


@given(st.lists(st.tuples(st.sampled_from(Sight), st.integers(0, 40)), max_size=60))
def test_whatever_is_seen_the_budget_holds_and_dates_do_not_run_back(looks):
    record, now, launches = make_record(BOOTING, last_transition=BEFORE), NOW, 0
    for sight, passed_s in looks:
        now += timedelta(seconds=passed_s)
        before = record
        step = lifecycle.saw(record, sight, now, GRACE)
        record = step.record
        assert record.restart_count <= lifecycle.RESTART_BUDGET
        assert record.last_transition == (before.last_transition if record.phase is before.phase else now)
        assert record.phase is SLEEPING or record.sleeping_footprint_bytes is None
        assert before.phase is not FAILED or record.phase is FAILED
        if step.order is Order.LAUNCH:
            launches += 1
            record = lifecycle.launched(record, EngineProcess(4_000 + launches, "1"), now)
    assert launches <= lifecycle.RESTART_BUDGET

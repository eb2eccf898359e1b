"""The pool policy annotation: what is read, what is refused, and as what kind of mistake."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.api.pool_policy import PolicyError, PolicyErrorClass, parse_policy

RECLAIM = '"mode":"kv-first","capacityBytes":1,"guaranteedFloorPercent":20'


@pytest.mark.parametrize(
    ("text", "error_class"),
    [
        pytest.param("", PolicyErrorClass.INVALID_JSON, id="empty"),
        pytest.param("[]", PolicyErrorClass.INVALID_JSON, id="a list"),
        pytest.param("{} {}", PolicyErrorClass.INVALID_JSON, id="trailing value"),
        pytest.param('{"lifecycle":null}{', PolicyErrorClass.INVALID_JSON, id="trailing rubbish"),
        pytest.param("[" * 100_000, PolicyErrorClass.INVALID_JSON, id="nested too deeply"),
        pytest.param('{"lifecycle":{"sleepAfterSeconds":1,"sleepAfterSeconds":2}}', "invalid_json", id="a key twice"),
        pytest.param('{"lifecycle":{"sleepAfterSeconds":60},"other":1}', "unknown_field", id="unknown section"),
        pytest.param('{"lifecycle":{"sleep_after_seconds":60}}', "unknown_field", id="snake case"),
        pytest.param('{"lifecycle":{"sleepAfterSeconds":-1}}', "invalid_sleep_window", id="negative"),
        pytest.param('{"lifecycle":{"sleepAfterSeconds":0}}', "invalid_sleep_window", id="zero without the switch"),
        pytest.param('{"lifecycle":{}}', "invalid_sleep_window", id="nothing in it"),
        pytest.param('{"lifecycle":{"sleepAfterSeconds":"60"}}', "invalid_sleep_window", id="text for a number"),
        pytest.param('{"lifecycle":{"sleepAfterSeconds":60.5}}', "invalid_sleep_window", id="half a second"),
        pytest.param(
            '{"lifecycle":{"sleepAfterSeconds":60,"sleepToMakeRoomAfterSeconds":0}}',
            "invalid_sleep_window",
            id="no room",
        ),
        pytest.param(
            '{"lifecycle":{"sleepAfterSeconds":60,"sleepToMakeRoomAfterSeconds":61}}',
            "invalid_sleep_window",
            id="longer",
        ),
        pytest.param('{"reclaim":{"mode":"all","capacityBytes":1,"guaranteedFloorPercent":1}}', "unsupported_mode"),
        pytest.param(
            '{"reclaim":{"mode":"kv-first","capacityBytes":0,"guaranteedFloorPercent":1}}', "invalid_capacity"
        ),
        pytest.param('{"reclaim":{"mode":"kv-first","capacityBytes":1,"guaranteedFloorPercent":101}}', "invalid_floor"),
    ],
)
def test_a_mistake_disables_the_whole_policy_and_has_a_class(text, error_class):
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    assert caught.value.error_class == error_class
    assert str(caught.value)


@pytest.mark.parametrize(
    ("lifecycle", "make_room_after_s"),
    [
        pytest.param('{"sleepAfterSeconds":60}', 30, id="half a minute"),
        pytest.param('{"sleepAfterSeconds":20}', 20, id="never longer than the window"),
        pytest.param('{"noWakeReserveWhileAsleep":true}', 30, id="only the switch"),
        pytest.param(
            '{"noWakeReserveWhileAsleep":true,"sleepToMakeRoomAfterSeconds":300}', 300, id="any, without window"
        ),
        pytest.param('{"sleepAfterSeconds":60,"sleepToMakeRoomAfterSeconds":60}', 60, id="as long as the window"),
    ],
)
def test_the_idle_time_after_which_room_may_be_made(lifecycle, make_room_after_s):
    policy = parse_policy(f'{{"lifecycle":{lifecycle}}}')
    assert policy.lifecycle is not None
    assert policy.lifecycle.make_room_after_s == make_room_after_s


def test_the_deprecated_section_is_checked_and_changes_nothing():
    policy = parse_policy(f'{{"reclaim":{{{RECLAIM}}}}}')
    assert policy.lifecycle is None
    assert policy.reclaim is not None


@given(st.text(max_size=200) | st.recursive(st.integers() | st.text(), st.lists).map(str))
def test_whatever_is_written_there_ends_in_a_policy_or_in_a_sentence(text):
    with contextlib.suppress(PolicyError):  # whatever else is raised would end the controller's pass
        assert parse_policy(text).reclaim is None

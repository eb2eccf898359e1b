"""Whatever bytes a sidecar sends, an outcome comes out, and a figure out of bounds makes the answer unreadable."""

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import Done, NotSent, Refused, Unknown
from aibrix_operator.runtime_api.reading import read_answer

CARD = {"id": "GPU-1", "hbm_total_bytes": 100, "hbm_free_bytes": 50, "hbm_usable_bytes": 90}
STATE = {
    "model_name": "m",
    "artifact_url": "hf://m",
    "claim_ref": {"namespace": "n", "name": "c", "uid": "u"},
    "port": 20_000,
    "ipc_name": "kvc_m",
    "phase": "active",
    "ready": True,
    "alive": True,
    "restart_count": 0,
    "last_error": None,
    "last_transition": "2026-11-29T08:00:14.954788Z",
    "kv_used_bytes": 3,
    "kv_capacity_bytes": 10,
    "hbm_peak_bytes": 6,
    "sleeping_footprint_bytes": None,
    "request_metrics_observed": True,
    "requests_running": 2,
    "requests_waiting": 1,
    "request_success_total": 7,
    "can_sleep": True,
}
SNAPSHOT = {
    "observed_at": "2026-11-29T08:00:19.351644Z",
    "accelerators": [CARD],
    "models": [STATE],
    "cached_artifacts": ["hf://m"],
}
WHOLE = json.dumps(SNAPSHOT).encode()


def read(content, status=200, answer=wire.Snapshot):
    return read_answer("runtime at p:1", "/x", status, content, answer)


def snapshot_with(card=None, state=None, **top):
    document = {**SNAPSHOT, "accelerators": [CARD | (card or {})], "models": [STATE | (state or {})], **top}
    return read(json.dumps(document).encode())


def without(document, *keys):
    return {key: value for key, value in document.items() if key not in keys}


def test_documented_snapshot_is_read_whole():
    outcome = read(WHOLE)
    assert isinstance(outcome, Done)
    assert json.loads(outcome.answer.model_dump_json()) == SNAPSHOT
    assert outcome.answer.observed_at == datetime(2026, 11, 29, 8, 0, 19, 351644, tzinfo=UTC)


def test_missing_optional_fields_read_as_unknown():
    state = {"model_name": "m", "phase": "booting"}
    card = without(CARD, "hbm_usable_bytes")
    outcome = read(
        json.dumps(without(SNAPSHOT, "cached_artifacts") | {"accelerators": [card], "models": [state]}).encode()
    )
    assert isinstance(outcome, Done)
    assert outcome.answer.models == (
        wire.ModelState(
            model_name="m",
            phase=wire.EnginePhase.BOOTING,
            port=0,
            ready=False,
            kv_used_bytes=-1,
            kv_capacity_bytes=-1,
            request_metrics_observed=False,
            request_success_total=None,
            sleeping_footprint_bytes=None,
        ),
    )
    assert outcome.answer.accelerators[0].hbm_usable_bytes == 0


def test_unknown_fields_are_ignored():
    claim = STATE["claim_ref"] | {"kind": "ModelClaim"}
    outcome = snapshot_with(card={"new": 1}, state={"new": [], "claim_ref": claim}, new={})
    assert isinstance(outcome, Done)
    assert outcome.answer == read(WHOLE).answer


@pytest.mark.parametrize("figure", [-1, -2, -(2**63)])
def test_negative_kv_and_usable_figures_mean_unknown(figure):
    outcome = snapshot_with({"hbm_usable_bytes": figure}, {"kv_used_bytes": figure, "kv_capacity_bytes": figure})
    assert isinstance(outcome, Done)
    state, card = outcome.answer.models[0], outcome.answer.accelerators[0]
    assert (state.kv_used_bytes, state.kv_capacity_bytes, card.hbm_usable_bytes) == (-1, -1, -1)


ODD_FIGURES = [True, "1", 1.5, 1e400, -math.inf, math.nan, 2**63, -(2**63) - 1, 10**30, [], {}]


@pytest.mark.parametrize("figure", [*ODD_FIGURES, None], ids=repr)
@pytest.mark.parametrize("field", ["kv_used_bytes", "kv_capacity_bytes", "hbm_peak_bytes", "requests_running", "port"])
def test_odd_figures_of_an_engine_make_the_answer_unreadable(field, figure):
    assert isinstance(snapshot_with(state={field: figure}), Unknown)


@pytest.mark.parametrize("figure", [*ODD_FIGURES, None], ids=repr)
@pytest.mark.parametrize("field", ["hbm_total_bytes", "hbm_free_bytes", "hbm_usable_bytes"])
def test_odd_figures_of_a_card_make_the_answer_unreadable(field, figure):
    assert isinstance(snapshot_with(card={field: figure}), Unknown)


@pytest.mark.parametrize(
    ("card", "state"),
    [
        ({"hbm_total_bytes": -1}, {}),
        ({"hbm_free_bytes": -1}, {}),
        ({}, {"port": -1}),
        ({}, {"port": 65_536}),
        ({}, {"restart_count": -1}),
        ({}, {"requests_running": -1}),
        ({}, {"request_success_total": -1}),
        ({}, {"sleeping_footprint_bytes": -1}),
        ({}, {"phase": "dreaming"}),
        ({}, {"ready": 1}),
        ({}, {"alive": "yes"}),
        ({}, {"model_name": None}),
        ({}, {"claim_ref": {"namespace": "n", "name": "c"}}),
        ({}, {"last_transition": "yesterday"}),
        ({}, {"last_transition": 12}),
    ],
    ids=str,
)
def test_values_out_of_bounds_make_the_answer_unreadable_and_are_named(card, state):
    outcome = snapshot_with(card, state)
    assert isinstance(outcome, Unknown)
    assert next(iter({**card, **state})) in outcome.message


@pytest.mark.parametrize(
    "moment",
    [12, "12", "1e5", "2026-11-29T08:00:19", "9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00", "", None, "NaN"],
    ids=repr,
)
def test_a_snapshot_without_a_moment_is_unreadable(moment):
    assert isinstance(snapshot_with(observed_at=moment), Unknown)


@pytest.mark.parametrize("field", ["observed_at", "accelerators", "models"])
@pytest.mark.parametrize("value", [None, "drop"])
def test_a_snapshot_that_lacks_a_part_is_unreadable(field, value):
    document = without(SNAPSHOT, field) if value == "drop" else SNAPSHOT | {field: None}
    assert isinstance(read(json.dumps(document).encode()), Unknown)


LEAVES = (
    st.sampled_from([*ODD_FIGURES, None, False, 0, -1, 7, "error", "success", "active", "\ud800", "é\0"])
    | st.integers()
)
KEYS = st.sampled_from([*STATE, *CARD, *SNAPSHOT, "status", "message", "detail", "applied", "operation_id"])
JSON = (
    LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(KEYS, LEAVES | st.just([STATE]) | st.just([{}]), max_size=5)
)
ANSWERS = st.sampled_from([wire.Snapshot, wire.OperationResponse, wire.ActivateResponse, wire.DeactivateResponse])
STATUSES = st.sampled_from([200, 201, 204, 307, 400, 404, 409, 422, 499, 500, 502, 503, 599])


def check(outcome, status):
    assert isinstance(outcome, Done | Refused | NotSent | Unknown)
    if isinstance(outcome, Done):
        assert 200 <= status < 300
    else:
        assert "p:1" in outcome.message
        assert len(outcome.message) < 1_000
    if 400 <= status < 500:
        assert isinstance(outcome, Refused)


@settings(max_examples=1_000, deadline=None)
@given(JSON, STATUSES, ANSWERS)
def test_any_json_becomes_an_outcome(document, status, answer):
    check(read(json.dumps(document).encode(), status, answer), status)


@settings(max_examples=1_000, deadline=None)
@given(st.sampled_from(sorted(STATE)), JSON, st.sampled_from(sorted(CARD)), JSON)
def test_any_value_in_any_field_becomes_an_outcome(field, value, card_field, card_value):
    check(snapshot_with({card_field: card_value}, {field: value}), 200)


@settings(max_examples=1_000, deadline=None)
@given(st.integers(0, len(WHOLE)), st.integers(0, 40), st.binary(max_size=20), STATUSES)
@example(0, len(WHOLE), b"", 200)
@example(0, 0, b"\xef\xbb\xbf", 200)
def test_any_damage_to_an_answer_becomes_an_outcome(start, removed, inserted, status):
    check(read(WHOLE[:start] + inserted + WHOLE[start + removed :], status), status)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), STATUSES, ANSWERS)
def test_any_bytes_become_an_outcome(content, status, answer):
    check(read(content, status, answer), status)


@pytest.mark.parametrize("opening", ["[", '{"models":', '{"a":[', '{"models":[{"claim_ref":'])
@pytest.mark.parametrize("depth", [900, 1_100, 100_000])
def test_deep_answers_become_an_outcome(opening, depth):
    check(read((opening * depth).encode()), 200)
    closing = "".join({"[": "]", "{": "}"}[sign] for sign in reversed(opening) if sign in "[{")
    check(read((opening * depth + "0" + closing * depth).encode()), 200)


def test_requests_refuse_what_they_do_not_know():
    with pytest.raises(ValueError, match="extra_forbidden"):
        wire.WakeRequest(model_name="m", operation_id="o", level=1)
    with pytest.raises(ValueError, match="string_too_short"):
        wire.WakeRequest(model_name="m", operation_id="")


def test_secrets_stay_out_of_a_requests_text():
    request = wire.ActivateRequest(model_name="m", artifact_url="x", credentials={"token": "s3cret"})
    assert "s3cret" not in repr(request)

"""The registry file: its exact text, what survives a round trip, and what is left out."""

import json
import os
import stat

import pytest
from engine_records import NOW, make_record
from hypothesis import given, settings
from hypothesis import strategies as st

from aibrix_operator.runtime.registry import EngineRegistry, RegistryError, Stored, to_entry
from aibrix_operator.runtime_api.wire import ClaimRef, EnginePhase

FULL = make_record(
    EnginePhase.SLEEPING,
    model_name="m-a",
    claim_ref=ClaimRef(namespace="default", name="a", uid="7f0c"),
    engine_args={"--max-model-len": "2048"},
    additional_config={"engine-arg:--x": "1"},
    sleeping_footprint_bytes=314_572_800,
    restart_count=2,
)


@pytest.fixture
def registry(tmp_path):
    return EngineRegistry(tmp_path / "run" / "engines.json")


def write(registry, document):
    registry.save([])
    registry._path.write_text(document if isinstance(document, str) else json.dumps(document))


def test_the_text_is_compact_and_sorted(registry):
    registry.save([make_record()])
    assert registry._path.read_text() == (
        '{"engines":[{"additional_config":null,"artifact_url":"hf://org/m","claim_ref":null,"engine":"vllm",'
        '"engine_config":null,"ipc_name":"kvc_m","last_error":null,"last_transition":"2026-11-29T07:55:00+00:00",'
        '"model_name":"m","next_restart_at":null,"phase":"active","pid":4000,"pid_start_time":"76784","port":20000,'
        '"restart_count":0,"sleeping_footprint_bytes":null}],"version":1}'
    )


def test_only_the_owner_may_read_it(registry):
    previous = os.umask(0)
    try:
        registry.save([])
    finally:
        os.umask(previous)
    path = registry._path
    assert [stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent)] == [0o600, 0o700]


def test_records_come_back_as_they_were(registry):
    records = (FULL, make_record(EnginePhase.RESTARTING, next_restart_at=NOW, process=None, last_error="x"))
    registry.save(records)
    assert registry.load() == Stored(records)


def test_a_write_leaves_nothing_beside_the_file(registry):
    registry.save([FULL])
    registry.save([])
    assert os.listdir(registry._path.parent) == ["engines.json"]


def test_a_write_that_fails_keeps_the_old_file_and_names_it(registry, monkeypatch):
    registry.save([FULL])

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(RegistryError, match=r"engines\.json cannot be written: no space left"):
        registry.save([])
    monkeypatch.undo()
    assert registry.load() == Stored((FULL,))
    assert os.listdir(registry._path.parent) == ["engines.json"]


def test_no_file_is_no_engine(registry):
    assert registry.load() == Stored()


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        {"engines": []},
        {"engines": [], "version": 2},
        {"engines": {}, "version": 1},
        {"engines": [to_entry(FULL), 1], "version": 1},
    ],
    ids=lambda d: str(d)[:30] or "empty",
)
def test_a_file_that_is_none_of_ours_holds_nothing(registry, document):
    write(registry, document)
    assert registry.load() == Stored()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_name", ""),
        ("model_name", None),
        ("port", 0),
        ("port", 70_000),
        ("port", "many"),
        ("ipc_name", "../etc"),
        ("ipc_name", ""),
        ("phase", "dreaming"),
        ("last_transition", "yesterday"),
        ("last_transition", 12),
        ("last_transition", "2026-11-29T07:55:00"),
        ("last_transition", "0001-01-01T00:00:00+23:00"),
        ("claim_ref", {"name": "a"}),
        ("engine_config", {"args": []}),
        ("pid", 0),
        ("pid", 1),
        ("pid", -5),
        ("restart_count", -1),
        ("artifact_url", 7),
        ("artifact_url", "\ud800"),
        ("last_error", "\ud800"),
    ],
    ids=str,
)
def test_an_entry_with_an_invalid_field_is_left_out_and_counted(registry, field, value):
    write(registry, {"engines": [to_entry(FULL) | {field: value}, to_entry(make_record())], "version": 1})
    assert registry.load() == Stored((make_record(),), invalid=1)


@pytest.mark.parametrize(
    "field", ["model_name", "artifact_url", "engine", "port", "ipc_name", "phase", "last_transition"]
)
def test_an_entry_without_a_needed_field_is_left_out(registry, field):
    entry = {key: value for key, value in to_entry(FULL).items() if key != field}
    write(registry, {"engines": [entry], "version": 1})
    assert registry.load() == Stored(invalid=1)


def test_a_footprint_of_an_engine_that_does_not_sleep_is_ignored(registry):
    write(registry, {"engines": [to_entry(make_record()) | {"sleeping_footprint_bytes": 7}], "version": 1})
    assert registry.load().records[0].sleeping_footprint_bytes is None


def test_a_pid_without_its_start_time_is_no_process(registry):
    write(registry, {"engines": [to_entry(make_record()) | {"pid_start_time": None}], "version": 1})
    assert registry.load().records[0].process is None


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(to_entry(FULL))), VALUES, max_size=4))
def test_any_value_in_a_file_is_read_or_left_out(tmp_path_factory, damage):
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_text(json.dumps({"engines": [to_entry(FULL) | damage], "version": 1}))
    registry = EngineRegistry(path)
    stored = registry.load()
    assert len(stored.records) + stored.invalid == 1
    assert stored.records == (FULL,) or damage

"""A former leader's calls: which terms are higher, what is refused, and that neither a restart nor upstream forgets."""

import asyncio
import itertools
import json
import random
from datetime import UTC

import pytest
from engine_records import make_record
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.api.term import Term, parse_term
from aibrix_operator.runtime import controls
from aibrix_operator.runtime.fence import Fence, StaleTermError
from aibrix_operator.runtime.registry import EngineRegistry, RegistryError, Stored
from aibrix_operator.runtime_api.wire import DeactivateRequest, KVLimitRequest, SleepRequest

ASCENDING = [
    "2026-11-29T07:59:59Z/900",
    "2026-11-29T08:00:00Z/0",
    "2026-11-29T08:00:00Z/9",
    "2026-11-29T08:00:00Z/10",
    "2026-11-29T08:00:00.5Z/3",
    "2026-11-29T08:00:01Z/0",
    "2026-11-30T00:30:00+02:00/0",
    "2026-11-29T23:00:00Z/0",
]
OLD, NEW = parse_term("2026-11-29T08:00:00Z/4"), parse_term("2026-11-29T08:00:00Z/5")


# --- the pair


def test_the_leases_creation_counts_before_its_transitions():
    terms = [parse_term(text) for text in ASCENDING]
    shuffled = random.Random(7).sample(terms, len(terms))
    assert sorted(shuffled) == terms
    assert len(set(terms)) == len(terms)


@given(st.datetimes(timezones=st.just(UTC)), st.integers(0, 10**9))
def test_a_term_is_read_as_it_was_written(created, transitions):
    term = Term(created, transitions)
    assert parse_term(str(term)) == term


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4",
        "2026-11-29T08:00:00Z",
        "2026-11-29T08:00:00Z/",
        "2026-11-29T08:00:00Z/-1",
        "2026-11-29T08:00:00Z/4 ",
        "2026-11-29T08:00:00/4",
        "2026-11-29/4",
        "2026-13-29T08:00:00Z/4",
        "0001-01-01T00:00:00+14:00/4",
        "2026-11-29T08:00:00Z/٤",
        "2026-11-29T08:00:00Z/" + "9" * 5000,
    ],
)
def test_what_is_no_term_is_refused(text):
    with pytest.raises(ValueError, match="is no term"):
        parse_term(text)


# --- the rule


@pytest.mark.parametrize(
    ("calls", "admitted", "highest"),
    [
        pytest.param([None], [True], None, id="without-a-term"),
        pytest.param([OLD, OLD], [True, True], OLD, id="the-same-leader-twice"),
        pytest.param([OLD, NEW, OLD], [True, True, False], NEW, id="a-former-leader"),
        pytest.param([NEW, None, NEW], [True, True, True], NEW, id="a-user-between"),
        pytest.param([NEW, OLD, None, OLD, NEW], [True, False, True, False, True], NEW, id="a-user-opens-no-door"),
    ],
)
def test_a_term_below_the_highest_is_refused(calls, admitted, highest):
    fence = Fence()

    def is_admitted(term):
        try:
            fence.admit(term)
        except StaleTermError:
            return False
        return True

    assert [is_admitted(term) for term in calls] == admitted
    assert fence.highest == highest


def test_in_any_order_of_calls_the_accepted_terms_never_fall():
    terms = [None, *(parse_term(text) for text in ASCENDING[:4])]
    for order in itertools.product(terms, repeat=4):
        fence, accepted = Fence(), []
        for term in order:
            try:
                fence.admit(term)
            except StaleTermError:
                assert term < max(t for t in accepted if t is not None)
                continue
            accepted.append(term)
        carried = [t for t in accepted if t is not None]
        assert carried == sorted(carried)


def test_the_refusal_names_both_terms_and_what_to_do():
    with pytest.raises(StaleTermError, match=r"term 2026-11-29T08:00:00Z/4 .* term 2026-11-29T08:00:00Z/5 .* Lease"):
        Fence(NEW).admit(OLD)


# --- the file


@pytest.fixture
def registry(tmp_path):
    return EngineRegistry(tmp_path / "engines.json")


def test_the_file_keeps_the_term_beside_the_records(registry):
    registry.save([make_record()], NEW)
    assert registry.load() == Stored((make_record(),), operator_term=NEW)
    document = json.loads(registry._path.read_text())
    assert {"engines", "operator_term", "version"} == document.keys()
    assert (document["version"], document["operator_term"]) == (1, "2026-11-29T08:00:00Z/5")


@pytest.mark.parametrize("stored", [7, "", "yesterday/3", {"created": 1}, []])
def test_a_term_that_cannot_be_read_costs_no_record(registry, stored):
    registry.save([make_record()], NEW)
    document = json.loads(registry._path.read_text()) | {"operator_term": stored}
    registry._path.write_text(json.dumps(document))
    assert registry.load() == Stored((make_record(),))


# --- the sidecar


def kv_limit(model="m"):
    return KVLimitRequest(model_name=model, limit_bytes=1, operation_id="o")


async def test_every_change_of_a_former_leader_is_refused_and_does_nothing(bench):
    await bench.start_and_serve()
    await bench.fleet.hear_of(NEW)
    before = bench.record
    calls = bench.controls
    for change in (
        calls.set_kv_limit(kv_limit(), OLD),
        calls.deactivate(DeactivateRequest(model_name="m"), OLD),
        calls.sleep(SleepRequest(model_name="m", level=1, operation_id="o"), OLD),
    ):
        with pytest.raises(StaleTermError):
            await change
    assert bench.record == before
    assert (await calls.set_kv_limit(kv_limit(), NEW)).applied


async def test_the_next_sidecar_still_refuses_a_former_leader(bench):
    with pytest.raises(controls.ModelUnknownError):
        await bench.controls.set_kv_limit(kv_limit(), NEW)
    bench.again()
    await bench.supervisor.adopt()
    assert bench.fleet.fence.highest == NEW
    with pytest.raises(StaleTermError):
        await bench.controls.deactivate(DeactivateRequest(model_name="m"), OLD)


async def test_a_call_that_waited_for_its_turn_is_judged_when_it_has_it(bench):
    """A former leader's call queues behind a sleep, and the new leader reads meanwhile: it must not slip through."""
    await bench.start_and_serve()
    asleep, go_on = asyncio.Event(), asyncio.Event()

    async def sleep():
        asleep.set()
        await go_on.wait()

    bench.kind.on_sleep = sleep
    first = asyncio.create_task(bench.controls.sleep(SleepRequest(model_name="m", level=1, operation_id="o"), OLD))
    await asleep.wait()
    late = asyncio.create_task(bench.controls.deactivate(DeactivateRequest(model_name="m"), OLD))
    await bench.fleet.hear_of(NEW)  # waits for nothing of it
    go_on.set()
    assert (await first).applied
    with pytest.raises(StaleTermError):
        await late
    assert bench.record is not None


async def test_a_term_that_could_not_be_written_holds_and_is_written_later(bench, monkeypatch):
    def fail(*_):
        raise RegistryError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(EngineRegistry, "save", fail)
        await bench.fleet.hear_of(NEW)
    assert bench.fleet.fence.highest == NEW
    await bench.supervisor.tick()
    assert EngineRegistry(bench.settings.engine_registry_path).load().operator_term == NEW


async def test_a_change_during_a_write_is_written_too(bench, monkeypatch):
    """A reading's term is stored without the operation lock, so another change may come while that write runs."""
    save, begun = EngineRegistry.save, []

    def change_meanwhile(registry, records, term):
        if not begun:
            begun.append(True)
            bench.fleet.put(make_record(process=None))
        save(registry, records, term)

    monkeypatch.setattr(EngineRegistry, "save", change_meanwhile)
    await bench.fleet.hear_of(NEW)
    await bench.fleet.save()
    stored = EngineRegistry(bench.settings.engine_registry_path).load()
    assert (len(stored.records), stored.operator_term) == (1, NEW)

"""Where a claim without a record finds its engine, and what it may be recorded with there."""

import dataclasses

import pytest
from builders import SEAT, make_claim, make_draft, make_engine, make_instance, make_pod, make_snapshot

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.api.pool_policy import Lifecycle, PoolPolicy
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim import adopting
from aibrix_operator.modelclaim.dividing import Cause
from aibrix_operator.modelclaim.memory import CardMemory, Division, Hold
from aibrix_operator.modelclaim.snapshot import Pool
from aibrix_operator.runtime_api.wire import EnginePhase

LENDING = Pool(
    "default",
    "pool-a",
    "uid-of-pool-a",
    policy=PoolPolicy(lifecycle=Lifecycle(sleepAfterSeconds=600, noWakeReserveWhileAsleep=True)),
)
ROUTED = {names.route_annotation("a"): "{}"}


def found(*objects, **memory):
    """(what claim a gets, whether it waits) in a pass over the objects."""
    draft = make_draft(*objects, **memory)
    adopting.find_adopted(draft)
    return draft.adopted.get("uid-of-a"), "uid-of-a" in draft.awaited


def pod_with(*engines, usable=(1000,), **changes):
    return make_pod(snapshot=make_snapshot(*engines, usable=usable), **changes)


@pytest.mark.parametrize(
    ("engine", "phase", "limit"),
    [
        pytest.param(make_engine(), InstancePhase.ACTIVE, 200, id="a served one keeps its limit"),
        pytest.param(make_engine(limit=700), InstancePhase.ACTIVE, 700, id="up to all that the card has"),
        pytest.param(make_engine(limit=701), InstancePhase.ACTIVATING, 700, id="past the card it is off the route"),
        pytest.param(make_engine(limit=50), InstancePhase.ACTIVE, 100, id="below its floor it is raised to that"),
        pytest.param(make_engine(limit=-1), InstancePhase.ACTIVATING, 100, id="without a segment it gets its floor"),
        pytest.param(make_engine(port=0), InstancePhase.ACTIVATING, 200, id="without a port it is not served"),
        pytest.param(make_engine(phase=EnginePhase.BOOTING), InstancePhase.ACTIVATING, 200, id="it boots"),
        pytest.param(make_engine(phase=EnginePhase.SLEEPING), InstancePhase.SLEEPING, 200, id="it sleeps"),
    ],
)
def test_an_engine_alone_on_its_card_is_adopted_as_it_is(engine, phase, limit):
    port = engine.port
    assert found(make_claim(), pod_with(engine)) == (make_instance(phase, port=port, limit=limit), False)


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([make_claim("b", make_instance(limit=400))], id="a record"),
        pytest.param([make_claim("b", make_instance(limit=200)), make_engine("b", limit=400)], id="a limit in force"),
        pytest.param([make_claim("b"), make_engine("b", limit=400)], id="another without a record"),
        pytest.param([make_engine("b", limit=700, claim=False)], id="an engine that nobody knows"),
    ],
)
def test_what_others_have_or_may_take_is_left_to_them(others):
    claims = [o for o in others if not hasattr(o, "kv_capacity_bytes")]
    engines = [o for o in others if hasattr(o, "kv_capacity_bytes")]
    adopted, _ = found(make_claim(), *claims, pod_with(make_engine(), *engines, usable=(1100,)))
    assert adopted == make_instance(InstancePhase.ACTIVATING, limit=100)
    assert found(make_claim(), *claims, pod_with(make_engine(), *engines, usable=(1099,))) == (None, False)


def test_a_seat_that_is_held_for_a_third_is_left_to_it():
    cards = {"warm-0": CardMemory(hold=Hold("uid-of-c", 600, 100.0))}
    adopted, _ = found(make_claim(), pod_with(make_engine()), cards=cards)
    assert adopted == make_instance(InstancePhase.ACTIVATING, limit=100)


def test_an_instance_that_failed_for_good_costs_nothing():
    failed = make_claim("b", make_instance(InstancePhase.FAILED, limit=600))
    engines = make_engine(), make_engine("b", EnginePhase.FAILED)
    assert found(make_claim(), failed, pod_with(*engines)) == (make_instance(), False)


def test_a_sleeper_that_lent_its_seat_needs_what_it_holds_asleep():
    asleep = make_engine(phase=EnginePhase.SLEEPING, limit=0, sleeping_footprint_bytes=50)
    neighbour = make_claim("b", make_instance(limit=600)), make_engine("b", limit=600)
    pod = pod_with(asleep, neighbour[1], usable=(950,), pool=LENDING)
    assert found(make_claim(), neighbour[0], pod) == (make_instance(InstancePhase.SLEEPING, limit=0), False)
    pod = pod_with(asleep, neighbour[1], usable=(949,), pool=LENDING)
    assert found(make_claim(), neighbour[0], pod) == (None, False)


@pytest.mark.parametrize(
    ("limit", "record", "in_force", "usable", "expected"),
    [
        pytest.param(700, 0, 0, 1050, 700, id="it lent its seat: what it holds asleep is all it needs"),
        pytest.param(701, 0, 0, 1050, 700, id="and a limit that is past the rest is cut to that"),
        pytest.param(700, 100, 100, 1050, 350, id="it has its seat back, to wake"),
        pytest.param(700, 100, 100, 799, None, id="and its seat leaves too little"),
        pytest.param(700, 100, 0, 1050, 700, id="a seat on its way to be lent is not in the way of a limit that fits"),
        pytest.param(701, 100, 0, 1050, 350, id="but one that is recorded is not given to whom no limit holds"),
        pytest.param(-1, 100, 0, 799, None, id="nor to one without a segment"),
    ],
)
def test_beside_a_sleeper_there_is_what_its_record_leaves(limit, record, in_force, usable, expected):
    asleep = make_engine("b", EnginePhase.SLEEPING, limit=in_force, sleeping_footprint_bytes=50)
    sleeper = make_claim("b", make_instance(InstancePhase.SLEEPING, limit=record), seat=Seat(300, 100))
    pod = pod_with(make_engine(limit=limit), asleep, usable=(usable,), pool=LENDING)
    adopted, _ = found(make_claim(), sleeper, pod)
    assert (adopted and adopted.kv_limit_bytes) == expected


@pytest.mark.parametrize(
    ("limit", "in_force", "fits"),
    [
        pytest.param(0, 0, True, id="it is held to what it maps"),
        pytest.param(0, 100, False, id="it has its seat back, to wake"),
        pytest.param(100, 0, False, id="it is not held to what it maps yet"),
    ],
)
def test_a_sleeper_that_lent_its_seat_takes_none_that_is_recorded(limit, in_force, fits):
    engines = [
        make_engine(name, EnginePhase.SLEEPING, limit=kv, sleeping_footprint_bytes=50)
        for name, kv in (("a", limit), ("b", in_force))
    ]
    neighbour = make_claim("b", make_instance(InstancePhase.SLEEPING, limit=100))
    adopted, _ = found(make_claim(), neighbour, pod_with(*engines, usable=(449,), pool=LENDING))
    assert (adopted is not None) is fits


def test_what_a_write_under_way_records_is_left_to_its_claim():
    grows = make_claim("b", make_instance(limit=200), is_writing=True, writing_instances=(make_instance(limit=400),))
    pod = pod_with(make_engine(), make_engine("b"), usable=(1100,))
    assert found(make_claim(), grows, pod)[0] == make_instance(InstancePhase.ACTIVATING, limit=100)


def test_one_that_serves_comes_before_one_that_does_not():
    pods = pod_with(make_engine(phase=EnginePhase.BOOTING)), pod_with(make_engine(), name="warm-1")
    assert found(make_claim(), *pods)[0] == make_instance(pod="warm-1")


@pytest.mark.parametrize(
    "claim",
    [
        make_claim(is_writing=True),
        make_claim(seat=None),
        make_claim("a", make_instance(pod="warm-1")),
        make_claim(engine_error="no number"),
    ],
    ids=["is being written", "declares nothing", "has a record", "cannot be started"],
)
def test_a_claim_that_could_not_be_placed_now_is_not_adopted(claim):
    assert found(claim, pod_with(make_engine())) == (None, False)


def test_a_claim_that_is_being_placed_is_not_adopted():
    division = Division(Cause.PLACEMENT, frozenset(), {}, {}, newcomer="a", newcomer_seat=SEAT)
    assert found(make_claim(), pod_with(make_engine()), cards={"warm-1": CardMemory(division=division)})[0] is None


@pytest.mark.parametrize("phase", [EnginePhase.STOPPING, EnginePhase.FAILED])
def test_an_engine_that_ends_is_not_adopted(phase):
    assert found(make_claim(), pod_with(make_engine(phase=phase))) == (None, False)


def test_an_engine_beside_a_namesake_that_is_recorded_is_not_adopted():
    namesake = make_claim("b", make_instance(port=0, phase=InstancePhase.ACTIVATING))
    namesake = dataclasses.replace(namesake, spec=namesake.spec.model_copy(update={"model_name": "a"}))
    assert found(make_claim(), namesake, pod_with(make_engine()))[0] is None


def test_a_claim_waits_while_its_card_cannot_be_judged_and_its_engine_would_not_be_stopped():
    pod = make_pod(snapshot=make_snapshot(make_engine(), usable=(-1,), total=(1000,)))
    assert found(make_claim(), pod) == (None, True)
    orphans = {"warm-0": CardMemory(orphans={"uid-of-a": 30.0})}
    assert found(make_claim(), pod, cards=orphans, now_s=29.0) == (None, True)
    assert found(make_claim(), pod, cards=orphans, now_s=30.0) == (None, False)


def test_a_claim_waits_for_the_reading_of_a_pod_that_it_was_routed_to():
    assert found(make_claim(), make_pod(annotations=ROUTED)) == (None, True)
    assert found(make_claim(), make_pod()) == (None, False)
    assert found(make_claim(), make_pod(annotations=ROUTED, error="no answer")) == (None, False)
    assert found(make_claim(), make_pod(annotations=ROUTED, is_running=False)) == (None, False)


def test_a_claim_waits_two_seconds_for_a_call_to_the_pod_that_it_was_routed_to():
    pod = pod_with(make_engine(), annotations=ROUTED, busy_since_s=1.0)
    assert found(make_claim(), pod, now_s=2.9) == (None, True)
    assert found(make_claim(), pod, now_s=3.0) == (None, False)

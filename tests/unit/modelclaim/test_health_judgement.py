"""What the last reading makes of one instance, and whether it is routed."""

import pytest
from builders import make_engine, make_instance, make_pod, make_sitting, make_snapshot

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.modelclaim import health
from aibrix_operator.runtime_api.wire import EnginePhase

ACTIVATING, ACTIVE = InstancePhase.ACTIVATING, InstancePhase.ACTIVE
SLEEPING, FAILED = InstancePhase.SLEEPING, InstancePhase.FAILED
ROUTED = {names.route_annotation("a"): '{"model":"a","port":20000,"state":"active","wakeByRequest":true}'}


def judge(instance, engine, annotations=None):
    snapshot = make_snapshot(*([] if engine is None else [engine]))
    return health.judge(make_sitting(instance, engine), make_pod("warm-0", snapshot, annotations=annotations))


@pytest.mark.parametrize(
    ("before", "engine", "phase", "reasons"),
    [
        pytest.param(ACTIVATING, make_engine(), ACTIVE, ["Activated"], id="ready within its record"),
        pytest.param(ACTIVE, make_engine(), ACTIVE, [], id="still serving"),
        pytest.param(ACTIVE, make_engine(limit=150), ACTIVE, [], id="below its record keeps the route"),
        pytest.param(ACTIVE, make_engine(limit=0), ACTIVE, [], id="held to nothing keeps the route"),
        pytest.param(ACTIVE, make_engine(limit=201), ACTIVATING, ["KVLimitNotHeld"], id="above its record"),
        pytest.param(ACTIVE, make_engine(limit=-1), ACTIVATING, ["KVLimitNotHeld"], id="segment unreadable"),
        pytest.param(ACTIVATING, make_engine(limit=150), ACTIVATING, [], id="below, not routed yet"),
        pytest.param(ACTIVATING, make_engine(limit=201), ACTIVATING, [], id="above, not routed yet"),
        pytest.param(ACTIVATING, make_engine(limit=-1), ACTIVATING, [], id="no segment yet"),
        pytest.param(ACTIVATING, make_engine(phase=EnginePhase.BOOTING), ACTIVATING, [], id="boots"),
        pytest.param(
            ACTIVATING, make_engine(phase=EnginePhase.BOOTING, ready=True), ACTIVE, ["Activated"], id="ready early"
        ),
        pytest.param(ACTIVE, make_engine(phase=EnginePhase.RESTARTING), ACTIVATING, ["Unhealthy"], id="crashed"),
        pytest.param(ACTIVE, make_engine(phase=EnginePhase.STOPPING), ACTIVATING, ["Unhealthy"], id="stopping"),
        pytest.param(ACTIVE, make_engine(ready=False), ACTIVATING, ["Unhealthy"], id="not ready any more"),
        pytest.param(ACTIVE, make_engine(port=0), ACTIVATING, ["Unhealthy"], id="without a port"),
        pytest.param(ACTIVE, None, ACTIVATING, ["Unhealthy"], id="not listed"),
        pytest.param(ACTIVE, make_engine(phase=EnginePhase.FAILED), FAILED, ["EngineFailed"], id="failed for good"),
        pytest.param(FAILED, make_engine(), FAILED, [], id="failed stays failed"),
        pytest.param(SLEEPING, make_engine(), ACTIVE, ["Woken"], id="woken by somebody"),
    ],
)
def test_the_reading_decides_the_phase(before, engine, phase, reasons):
    verdict = judge(make_instance(before), engine)
    assert (verdict.instance.phase, [n.reason for n in verdict.notes]) == (phase, reasons)


def test_an_engine_asleep_makes_a_sleeping_instance():
    assert judge(make_instance(), make_engine(phase=EnginePhase.SLEEPING)).instance.phase is SLEEPING


def test_a_record_of_zero_is_no_gate():
    assert judge(make_instance(ACTIVATING, limit=0), make_engine(limit=-1)).instance.phase is ACTIVE


def test_a_runtime_that_cannot_be_read_leaves_everything_as_it_was():
    before = make_instance()
    assert health.judge(make_sitting(before), make_pod("warm-0", error="cut off")) == health.Verdict(before)


def test_the_reason_goes_with_the_phase_that_it_explained():
    before = make_instance(SLEEPING, reason="WaitingForRoom")
    assert judge(before, make_engine(phase=EnginePhase.SLEEPING)).instance.reason == "WaitingForRoom"
    assert judge(before, make_engine()).instance.reason == ""


def test_a_changed_port_is_taken_over():
    assert judge(make_instance(port=20_000), make_engine(port=20_007)).instance.port == 20_007


@pytest.mark.parametrize(
    ("engine", "annotations", "write"),
    [
        pytest.param(make_engine(limit=150), None, 200, id="raised to its record"),
        pytest.param(make_engine(limit=900), None, 200, id="lowered to its record"),
        pytest.param(make_engine(limit=-1), None, None, id="nothing without a segment"),
        pytest.param(make_engine(limit=900, mapped=201), None, None, id="never below what it maps"),
        pytest.param(make_engine(limit=900), ROUTED, None, id="the route goes first"),
    ],
)
def test_the_record_is_written_to_an_engine_off_the_route(engine, annotations, write):
    assert judge(make_instance(ACTIVATING), engine, annotations).limit_to_write == write


def test_an_engine_whose_route_is_out_is_judged_as_the_write_under_way_says():
    """Its card is divided for a neighbour before its own status is acknowledged: it is below its record, and serves."""
    instance, engine = make_instance(ACTIVATING), make_engine(limit=150)
    sitting = make_sitting(instance, engine, is_writing=True, writing_instances=(make_instance(ACTIVE),))
    verdict = health.judge(sitting, make_pod("warm-0", make_snapshot(engine)))
    assert (verdict.instance.phase, verdict.notes) == (ACTIVE, ())


def test_a_route_that_cannot_be_read_is_none():
    """A limit is written only to an engine that no gateway sends requests to, and none reads such a route."""
    odd = {names.route_annotation("a"): "not a route"}
    assert judge(make_instance(InstancePhase.ACTIVATING), make_engine(limit=201), odd).limit_to_write == 200

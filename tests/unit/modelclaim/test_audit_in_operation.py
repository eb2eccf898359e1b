"""The running controller holds its cards against the ledger's laws, and counts what stays broken."""

import dataclasses
import logging

import pytest
from builders import make_claim, make_engine, make_fleet, make_instance, make_pod, make_snapshot
from simulated import CARD_24, limits, simulated

from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.api.pool_policy import parse_policy
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.modelclaim import auditing, reconcile, world
from aibrix_operator.modelclaim.snapshot import Pool
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.world import NAMESPACE

LENDING = parse_policy('{"lifecycle":{"noWakeReserveWhileAsleep":true}}')


def counted(cluster):
    name = "aibrix_modelclaim_ledger_violations_total"
    return cluster.world.metrics.registry.get_sample_value(name, {"namespace": NAMESPACE}) or 0.0


@pytest.fixture
def broken(monkeypatch):
    """What the audit finds: Pod name → a sentence. No schedule breaks a law, so it is told of one."""
    found = {}
    monkeypatch.setattr(auditing, "broken_laws", lambda fleet: {p: s for p, s in found.items() if p in fleet.pods})
    return found


@pytest.fixture
def expected_errors():
    """The audit says what it counts as an error, which would fail the story."""
    logger = logging.getLogger(reconcile.__name__)
    logger.disabled = True
    yield
    logger.disabled = False


async def served(cluster):
    for number in range(2):
        cluster.add_pod(f"warm-{number}", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)


async def break_and_look(cluster, broken):
    broken["warm-0"] = "too much is promised"
    cluster.world.audit_due_s.clear()
    cluster.set_pod_ready("warm-0", False)
    await cluster.run(1)
    assert cluster.world.audit_suspects[NAMESPACE].keys() == {"warm-0"}


@simulated
async def test_what_is_broken_for_a_moment_is_not_counted(cluster, broken):
    await served(cluster)
    await break_and_look(cluster, broken)
    await cluster.run(reconcile.AUDIT_S - 2)
    broken.clear()
    await cluster.run(60)
    assert counted(cluster) == 0


@simulated
async def test_what_stays_broken_is_counted_although_nothing_else_happens(cluster, broken, expected_errors):
    await served(cluster)
    await break_and_look(cluster, broken)
    await cluster.run(2 * reconcile.AUDIT_S)
    assert counted(cluster) >= 1


@simulated
async def test_a_look_at_one_pod_checks_its_card(cluster, broken, expected_errors):
    await served(cluster)
    pod = cluster.status("a").instances[0].pod
    cluster.world.audit_due_s[NAMESPACE] = cluster.now_s() + 3600
    broken[pod] = "too much is promised"
    cluster.request_wake(pod, "a")
    await cluster.run(2 * reconcile.AUDIT_S)
    assert counted(cluster) >= 1


@pytest.mark.parametrize(("asleep_bytes", "is_broken"), [(390, True), (401, False)])
def test_a_sleeper_that_holds_more_than_its_seat_is_no_fault_of_ours(asleep_bytes, is_broken):
    """Beside it 700 bytes are promised of a card of 1000, which its own seat of 400 would not fit either."""
    engines = make_engine("a", EnginePhase.SLEEPING, sleeping_footprint_bytes=asleep_bytes), make_engine("b", limit=400)
    sleeper = make_claim("a", make_instance(InstancePhase.SLEEPING, limit=0))
    neighbour = make_claim("b", make_instance(limit=400))
    pod = make_pod("warm-0", make_snapshot(*engines), pool=Pool("default", "pool-a", "uid", policy=LENDING))
    assert bool(auditing.broken_laws(make_fleet(sleeper, neighbour, pod))) is is_broken


@pytest.mark.parametrize(("largest", "is_broken"), [(1000, True), (1001, False)])
def test_records_that_fitted_a_larger_card_are_no_fault_of_ours(largest, is_broken):
    pod = make_pod("warm-0", make_snapshot(make_engine("a", limit=900)))
    pod = dataclasses.replace(pod, reading=dataclasses.replace(pod.reading, largest_bytes=largest))
    fleet = make_fleet(make_claim("a", make_instance(limit=900)), pod)
    assert bool(auditing.broken_laws(fleet)) is is_broken


@pytest.mark.parametrize(("limit", "is_broken"), [(0, False), (100, True)])
def test_a_sleeper_that_comes_back_awake_after_its_seat_was_given_away_is_no_fault_of_ours(limit, is_broken):
    engines = make_engine("a", EnginePhase.RESTARTING, limit=limit), make_engine("b", limit=600)
    sleeper = make_claim("a", make_instance(limit=limit))
    neighbour = make_claim("b", make_instance(limit=600))
    fleet = make_fleet(sleeper, neighbour, make_pod("warm-0", make_snapshot(*engines)))
    assert bool(auditing.broken_laws(fleet)) is is_broken


@simulated
async def test_a_record_that_the_api_server_lets_nobody_put_right_is_no_fault_of_ours(cluster):
    """Another hand wrote it. Each attempt is refused, and the next waits longer."""
    await served(cluster)
    cluster.store.fault = lambda verb, resource, name, body: errors.Unavailable("not now") if verb == "status" else None
    object_of_a = cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, "a"]
    forged = [instance | {"kvLimitBytes": 1 << 40} for instance in object_of_a["status"]["instances"]]
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "a"), {"status": {"instances": forged}})
    await cluster.run(90)
    assert counted(cluster) == 0
    assert cluster.world.is_retrying(("claim", object_of_a["metadata"]["uid"]))
    cluster.store.fault = lambda verb, resource, name, body: None
    await cluster.run(60)
    assert limits(cluster, "a")[0] < CARD_24


@simulated
async def test_what_failed_and_nobody_wants_any_more_is_tried_again_by_nobody(cluster):
    lane = "claim", "uid"
    wait_s = cluster.world.cool(lane)
    await cluster.run(wait_s + world.RETRIES_S)
    assert cluster.world.is_retrying(lane)
    await cluster.run(1)
    assert not cluster.world.is_retrying(lane)
    assert not cluster.world.is_retrying(("claim", "another"))

"""Terms of leading over one world: what ends with a term, and from what the next one begins."""

import asyncio

import pytest
from simulated import CARD_24, simulated

from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.api.term import TERM_HEADER, parse_term
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.patiently import RETRY_S
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.controller.leading import LeadersWriter, NotLeading, fence
from aibrix_operator.modelclaim.controller import ModelClaimController
from aibrix_operator.operator.terms import Terms
from aibrix_operator.sim.client import StoreClient

FIRST = parse_term("2026-11-29T08:00:00Z/1")


class StandIn:
    """As far as an elector is asked here."""

    def __init__(self, term=None):
        self.term = term

    @property
    def is_leader(self):
        return self.term is not None


def versions(cluster):
    """Of every object."""
    return {key: obj["metadata"]["resourceVersion"] for key, obj in cluster.store.objects.items()}


def leading_of(cluster, list_claims=None):
    """Terms of the cluster's controller, which is in its first one."""

    async def nothing(_):
        """The simulated watches never lag unless told to."""

    failures = []
    made = Terms(
        [ModelClaimController(cluster.world)],
        list_claims or nothing,
        lambda task: task.add_done_callback(failures.append),
    )
    made.failures = failures
    return made


@simulated
async def test_after_a_term_nothing_is_written_and_the_next_one_takes_everything_up(cluster):
    leading = leading_of(cluster)
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    await leading.end()
    cluster.apply("b", "6Gi", "1Gi")
    calls, objects = list(runtime.calls), versions(cluster)
    await cluster.run(120)
    assert (runtime.calls, versions(cluster)) == (calls, objects)

    leading.begin(FIRST)
    await cluster.run(30)
    assert [cluster.status(claim).phase for claim in ("a", "b")] == [ClaimPhase.ACTIVE] * 2
    (ended,) = leading.failures
    assert ended.exception() is None


@simulated
async def test_a_step_under_way_is_cut_at_once(cluster):
    leading = leading_of(cluster)
    runtime = cluster.add_pod("warm-0", CARD_24)
    reached = []

    async def hang(call):
        reached.append(call)
        await asyncio.sleep(3600)

    runtime.before_call = hang
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(10)
    assert len(reached) == 1
    began_s = cluster.now_s()
    await leading.end()
    assert cluster.now_s() == began_s
    assert not cluster.world.runtime_steps.keys_in_flight()
    runtime.before_call = None
    leading.begin(FIRST)
    await cluster.run(30)
    assert cluster.status("a").phase is ClaimPhase.ACTIVE


@simulated
async def test_no_pass_runs_before_the_claims_are_what_the_api_server_has(cluster):
    """The watch lags behind what the last leader promised: acting on it would promise the card twice."""
    heard = asyncio.Event()
    leading = leading_of(cluster, lambda _: heard.wait())
    cluster.add_pod("warm-0", CARD_24)
    await leading.end()
    cluster.apply("a", "6Gi", "1Gi")
    passes = cluster.world.passes.passes
    leading.begin(FIRST)
    await cluster.run(60)
    assert cluster.world.passes.passes == passes
    heard.set()
    await cluster.run(30)
    assert cluster.status("a").phase is ClaimPhase.ACTIVE


@simulated
async def test_no_pass_runs_before_the_pods_are_what_the_api_server_has_however_often_it_must_be_asked(cluster, caplog):
    """A claim on a Pod that was never heard of would count as having lost it."""
    world, asked_s = cluster.world, []
    leading = leading_of(cluster)

    async def away_at_first():
        asked_s.append(cluster.now_s())
        if len(asked_s) < 3:
            raise errors.Unavailable("LIST pods: no answer")

    await leading.end()
    world.list_pods = away_at_first
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    began_s, passes = cluster.now_s(), world.passes.passes
    leading.begin(FIRST)
    await cluster.run(2 * RETRY_S - 0.1)
    assert world.passes.passes == passes
    await cluster.run(30)
    assert asked_s == [began_s, began_s + RETRY_S, began_s + 2 * RETRY_S]
    assert "modelclaim: LIST pods: no answer; asking again in 2 s" in caplog.text
    assert cluster.status("a").phase is ClaimPhase.ACTIVE


@simulated
async def test_a_term_begins_with_no_memory_and_no_reading_of_the_last(cluster):
    leading = leading_of(cluster)
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("too-large", "60Gi", "1Gi")
    await cluster.run(100)
    world = cluster.world
    readers = dict(world.readers)
    assert readers
    assert world.memory["default"].passes > 0
    await leading.end()
    world.start_afresh()
    assert not world.memory
    assert not world.readers
    leading.begin(FIRST)
    await cluster.run(1)
    assert world.readers.keys() == readers.keys()
    assert all(world.readers[uid] is not readers[uid] for uid in readers)


@simulated
async def test_a_process_that_stops_begins_no_other_term(cluster):
    leading = leading_of(cluster)
    await leading.close(1.0)
    leading.begin(FIRST)
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    assert cluster.status("a").phase is None


@simulated
async def test_a_term_that_cannot_begin_is_reported(cluster):
    async def fail(_):
        raise ZeroDivisionError

    leading = leading_of(cluster, fail)
    await leading.end()
    leading.begin(FIRST)
    await cluster.run(1)
    (ended,) = leading.failures
    assert isinstance(ended.exception(), ZeroDivisionError)


@simulated
async def test_every_write_is_refused_while_another_leads(cluster):
    elector = StandIn()
    writer = LeadersWriter(StoreClient(cluster.store), elector)
    cluster.add_pod("warm-0", CARD_24)
    await cluster.world.passes.stop(0)
    cluster.apply("a", "6Gi", "1Gi")
    body = cluster.store.objects[MODEL_CLAIMS.plural, "default", "a"]
    objects = versions(cluster)
    writes = [
        lambda: writer.patch_status(MODEL_CLAIMS, "default", "a", {}, body["metadata"]["resourceVersion"]),
        lambda: writer.add_finalizer(MODEL_CLAIMS, body, "f"),
        lambda: writer.remove_finalizer(MODEL_CLAIMS, body, "f"),
        lambda: writer.create(PODS, "default", {"metadata": {"name": "new"}}),
        lambda: writer.replace(MODEL_CLAIMS, "default", "a", body),
        lambda: writer.delete(PODS, "default", "warm-0"),
        lambda: writer.patch(PODS, "default", "warm-0", {"spec": {}}),
        lambda: writer.patch_annotations(MODEL_CLAIMS, "default", "a", {"k": "v"}),
    ]
    for write in writes:
        with pytest.raises(NotLeading):
            await write()
    assert versions(cluster) == objects
    elector.term = FIRST
    await writes[-1]()
    assert versions(cluster) != objects


def test_runtimes_are_told_the_term_while_it_lasts():
    assert fence(StandIn(FIRST)) == {TERM_HEADER: "2026-11-29T08:00:00Z/1"}
    assert fence(StandIn()) is None

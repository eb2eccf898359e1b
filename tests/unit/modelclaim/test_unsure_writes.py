"""A status write whose answer is lost may have been done: it counts until another version of its claim is seen."""

import dataclasses

import pytest
from builders import make_claim, make_engine, make_fleet, make_instance, make_pod, make_snapshot, moment
from simulated import CARD_24, GIB, limits, simulated

from aibrix_operator.cluster import errors
from aibrix_operator.modelclaim import decide
from aibrix_operator.modelclaim.memory import CardMemory, ClaimMemory, Memory, Wait, WaitKind
from aibrix_operator.modelclaim.steps import WriteStatus


async def one_alone_after_two(cluster):
    """Claim b leaves a's card, and the answer to each status write of a is lost; watches tell 4 s later."""
    cluster.add_pod("warm-0", CARD_24)
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(15)
    assert limits(cluster, "a", "b") == (6 * GIB, 6 * GIB)
    cluster.delete_claim("b")
    await cluster.run(1)

    def lost(verb, resource, name, body):
        is_lost = (verb, name) == ("status", "a")
        return errors.Unavailable("the answer was lost") if is_lost else None

    cluster.store.lost, cluster.store.watch_delay_s = lost, 4.0
    while not cluster.world.unsure:
        await cluster.run(0.5)


@simulated
async def test_what_may_have_been_recorded_is_known_until_the_watch_tells(cluster):
    await one_alone_after_two(cluster)
    (unsure,) = cluster.world.unsure.values()
    assert [i.kv_limit_bytes for i in unsure.instances] == [18 * GIB]
    assert limits(cluster, "a") == (18 * GIB,)
    await cluster.run(15)
    assert cluster.world.unsure == {}


@simulated
async def test_a_later_write_that_is_answered_tells(cluster):
    await one_alone_after_two(cluster)
    cluster.store.lost = lambda verb, resource, name, body: None
    cluster.world.may_have_written("uid-of-nobody", "1", ())
    (uid,) = cluster.world.unsure.keys() - {"uid-of-nobody"}
    await cluster.run(15)
    assert uid not in cluster.world.unsure
    assert limits(cluster, "a") == (18 * GIB,)


@simulated
async def test_a_claim_that_goes_takes_it_along(cluster):
    await one_alone_after_two(cluster)
    cluster.world.forget_claim(next(iter(cluster.world.unsure)))
    assert cluster.world.unsure == {}


@simulated
async def test_what_several_writes_to_one_version_would_have_recorded_counts_together(cluster):
    await one_alone_after_two(cluster)
    ((uid, unsure),) = cluster.world.unsure.items()
    lower = unsure.instances[0].model_copy(update={"kv_limit_bytes": GIB})
    cluster.world.may_have_written(uid, unsure.resource_version, (lower,))
    assert [i.kv_limit_bytes for i in cluster.world.unsure[uid].instances] == [18 * GIB, GIB]
    cluster.world.may_have_written(uid, "another", (lower,))
    assert [i.kv_limit_bytes for i in cluster.world.unsure[uid].instances] == [GIB]


UNSURE = make_claim("b", resource_version="7", unsure_instances=(make_instance(limit=300), make_instance(limit=500)))


def steps(*objects, memory=None):
    plan, _ = decide.decide(make_fleet(*objects), memory or Memory(), moment())
    return plan.steps


@pytest.mark.parametrize(("others", "record"), [((), 700), ((UNSURE,), 200)])
def test_where_a_claim_may_have_been_recorded_nothing_is_dealt_to_others_before_its_record_is_known(others, record):
    """A neighbour has just left the card, and the claim waits for its next try."""
    neighbour, pod = make_claim("a", make_instance(limit=200)), make_pod(snapshot=make_snapshot(make_engine("a")))
    waiting = ClaimMemory(wait=Wait(WaitKind.ROOM, 1, until_s=20.0, generation=1, since_pass=1))
    memory = Memory(cards={"uid-of-warm-0": CardMemory(divided_for=frozenset())}, claims={"uid-of-b": waiting})
    writes = [s for s in steps(neighbour, *others, pod, memory=memory) if isinstance(s, WriteStatus)]
    (write,) = [w for w in writes if w.claim.name == "a"]
    assert [i.kv_limit_bytes for i in write.status.instances] == [record]


def test_a_status_that_says_the_same_is_written_again_if_another_may_be_recorded():
    """Its answer tells."""
    told = steps(UNSURE)[0].status
    seen = dataclasses.replace(UNSURE, status=told)
    assert [type(step) for step in steps(seen)] == [WriteStatus]
    assert steps(dataclasses.replace(seen, unsure_instances=())) == ()


def test_what_may_only_have_been_recorded_anew_where_it_is_seen_is_told_apart():
    assert UNSURE.unsure_pods == {"warm-0"}
    assert make_claim("b", make_instance(), unsure_instances=UNSURE.unsure_instances).unsure_pods == frozenset()

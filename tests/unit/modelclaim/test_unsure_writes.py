"""A status write whose answer is lost may have been done: it counts until another version of its claim is seen."""

from simulated import CARD_24, GIB, limits, simulated

from aibrix_operator.cluster import errors


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

"""The laws of order catch a controller that breaks them, and hold nothing against one that cannot know better."""

import pytest
from simulated import CARD_24, GIB, model

from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.sim import loop
from aibrix_operator.sim.sidecar import Later
from aibrix_operator.sim.world import NAMESPACE, LawBroken, SimulatedCluster


async def told_beside_a_stranger(cluster, what):
    """What the laws say when ``what`` is done to claim a, whose engine was just started beside one without a claim."""
    runtime = cluster.add_pod("warm-0", CARD_24, boot_s=20.0)
    cluster.seat("leaver", "warm-0", 6 * GIB, GIB, limit_bytes=5 * GIB)
    await cluster.run(15)

    async def late(call):
        return Later(4.0) if call[0] == "activate" else None

    runtime.before_call = late
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(2)
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "leaver"), {"metadata": {"finalizers": []}})
    cluster.delete_claim("leaver")  # by force, and its engine stays
    while model("a") not in runtime.engines:
        await cluster.run(0.05)
    try:
        await what(cluster)
        await cluster.run(2)
    except LawBroken as error:
        return str(error)
    return ""


async def wiped(cluster):
    cluster.patch_claim("a", {"status": None})


async def given_more(cluster):
    claim = cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, "a"]
    instances = [{**i, "kvLimitBytes": i["kvLimitBytes"] + 1} for i in claim["status"]["instances"]]
    version = claim["metadata"]["resourceVersion"]
    await cluster.store.patch_status(MODEL_CLAIMS, NAMESPACE, "a", {"instances": instances}, version)


@pytest.mark.parametrize(("what", "is_caught"), [(given_more, True), (wiped, False)], ids=["given more", "adopted"])
def test_nobody_is_given_more_beside_a_stranger_but_whose_engine_was_just_seen_is_adopted(what, is_caught):
    async def play():
        async with SimulatedCluster() as cluster:
            return await told_beside_a_stranger(cluster, what)

    assert ("a is given more on warm-0" in loop.run(play())) is is_caught

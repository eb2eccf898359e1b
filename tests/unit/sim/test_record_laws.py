"""What was promised on a card is judged by what whoever wrote it could know: not by what another hand has written
since, nor by what users declared while the write was on its way."""

import pytest
from simulated import CARD_24, GIB, MIB
from sleepers import lending, seat_asleep

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.sim import loop
from aibrix_operator.sim.store import in_time
from aibrix_operator.sim.world import NAMESPACE, SimulatedCluster

SPARE = 256 * MIB
"""Not worth a division."""


def broken_by(story):
    """What the laws say of ``async def story(cluster)``: a and b nearly fill a card, and only the story writes."""

    async def play():
        async with SimulatedCluster() as cluster:
            cluster.add_pod("warm-0", CARD_24)
            cluster.seat("a", "warm-0", 6 * GIB, GIB, limit_bytes=5 * GIB)
            cluster.seat("b", "warm-0", 8 * GIB, GIB, limit_bytes=5 * GIB - SPARE)
            await cluster.run(3)
            cluster.leader.go_deaf()
            assert cluster.laws.broken == []
            await story(cluster)
            return "\n".join(cluster.laws.broken)

    return loop.run(play())


def object_of(cluster, claim):
    return cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, claim]


def with_limit(cluster, claim, limit):
    instance = dict(object_of(cluster, claim)["status"]["instances"][0])
    return {"instances": [instance | {"kvLimitBytes": limit}]}


async def record(cluster, claim, status):
    """As the controller would."""
    version = object_of(cluster, claim)["metadata"]["resourceVersion"]
    await cluster.store.patch_status(MODEL_CLAIMS, NAMESPACE, claim, status, version)


def forge(cluster, claim, limit):
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, claim), {"status": with_limit(cluster, claim, limit)})


@pytest.mark.parametrize(("delay_s", "is_excused"), [(4.0, True), (0.0, False)])
def test_a_record_that_another_hand_wrote_is_held_against_nobody_who_has_yet_to_hear_of_it(delay_s, is_excused):
    async def story(cluster):
        cluster.store.watch_delay_s = delay_s
        forge(cluster, "b", 1 << 40)
        await cluster.run(1)
        await record(cluster, "a", with_limit(cluster, "a", 5 * GIB + SPARE))

    assert ("law 1: recording" in broken_by(story)) is not is_excused


def test_what_the_controller_recorded_itself_it_knows_whatever_the_watches_do():
    async def story(cluster):
        cluster.store.watch_delay_s = 4.0
        forge(cluster, "b", GIB)
        await record(cluster, "b", with_limit(cluster, "b", 5 * GIB))
        await record(cluster, "a", with_limit(cluster, "a", 5 * GIB + SPARE))

    assert "law 1: recording" in broken_by(story)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_write_that_arrives_late_is_judged_by_what_was_declared_when_it_was_sent(is_late):
    async def story(cluster):
        cluster.store.late = lambda verb, resource, name: 2.0 if is_late else None
        status = with_limit(cluster, "a", 5 * GIB + SPARE)
        if is_late:
            with pytest.raises(errors.Unavailable):
                await record(cluster, "a", status)
        cluster.store.late = in_time
        cluster.patch_claim("b", {"spec": {"perGPU": {"maximumFootprint": "10Gi", "kvFloor": "1Gi"}}})
        await cluster.run(3)
        if not is_late:
            await record(cluster, "a", status)
        assert object_of(cluster, "a")["status"]["instances"][0]["kvLimitBytes"] == 5 * GIB + SPARE

    assert ("law 1: recording" in broken_by(story)) is not is_late


@pytest.mark.parametrize(("limit_bytes", "is_excused"), [(0, True), (4 * GIB, False)])
def test_who_is_adopted_counts_a_sleeper_as_what_it_holds_once_one_reading_shows_its_limit_fallen(
    limit_bytes, is_excused
):
    async def play():
        async with SimulatedCluster() as cluster:
            cluster.add_pod("warm-0", CARD_24)
            cluster.set_policy(lending(3600))
            cluster.seat("a", "warm-0", 12 * GIB, GIB, limit_bytes=6 * GIB)
            seat_asleep(cluster, "sleeper", "warm-0", 9 * GIB, GIB, limit_bytes=0, asleep_bytes=GIB)
            await cluster.run(3)
            cluster.leader.go_deaf()
            forge(cluster, "sleeper", 4 * GIB)
            record_of_a = dict(object_of(cluster, "a")["status"])
            cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "a"), {"status": None})
            await cluster.run(1)
            told = cluster.laws.told["10.0.0.1"][-1].snapshot
            cluster.laws.told["10.0.0.1"].clear()
            for limit in (4 * GIB, limit_bytes):
                models = [
                    m.model_copy(update={"kv_capacity_bytes": limit}) if "sleeper" in m.model_name else m
                    for m in told.models
                ]
                cluster.laws.answered("10.0.0.1", told.model_copy(update={"models": tuple(models)}))
            await record(cluster, "a", record_of_a)
            return "\n".join(cluster.laws.broken)

    assert ("law 1: recording" in loop.run(play())) is not is_excused

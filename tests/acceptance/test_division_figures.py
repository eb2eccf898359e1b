"""How many bytes each engine of a card gets: the published tables, exactly."""

import itertools

import pytest
from simulated import GIB, H20, limits, model, simulated

from aibrix_operator.ledger.card import Activity, Card, Occupant, Seat
from aibrix_operator.ledger.division import CannotDivide, divide


@pytest.mark.acceptance("13")
@simulated
async def test_mc13_two_idle_samples_share_the_card_to_the_byte_and_engines_are_held_to_their_records(cluster):
    runtime = cluster.add_pod("warm-0", 24 * GIB)
    cluster.apply("qwen3-0-6b", "6Gi", "1Gi")
    cluster.apply("qwen25-0-5b", "6Gi", "1Gi")
    await cluster.run(30)
    assert limits(cluster, "qwen3-0-6b", "qwen25-0-5b") == (6_442_450_944, 6_442_450_944)
    assert 2 * 6 * GIB + 2 * 6_442_450_944 == 24 * GIB
    assert [e.limit_bytes for e in runtime.engines.values()] == [6_442_450_944, 6_442_450_944]


@pytest.mark.acceptance("16")
@simulated
async def test_mc16_the_h20_table_is_met_to_the_byte(cluster):
    runtime = cluster.add_pod("h20", H20)
    cluster.apply("model-a", "30Gi", "10Gi")
    await cluster.run(5)
    assert limits(cluster, "model-a") == (69_889_855_324,)
    cluster.apply("model-b", "30Gi", "10Gi")
    await cluster.run(15)
    assert limits(cluster, "model-a", "model-b") == (18_838_800_302, 18_838_800_302)

    busy = runtime.engines[model("model-a")]
    busy.running, busy.mapped_bytes = 4, 18_838_800_302 // 2
    await cluster.run(45)
    assert limits(cluster, "model-a", "model-b") == (24_239_721_677, 13_437_878_927)

    busy.running = busy.mapped_bytes = 0
    runtime.sleep(model("model-a"), asleep_bytes=int(1.3 * GIB))
    await cluster.run(15)
    assert limits(cluster, "model-a", "model-b") == (10_737_418_240, 26_940_182_364)

    runtime.wake(model("model-a"))
    await cluster.run(15)
    assert limits(cluster, "model-a", "model-b") == (18_838_800_302, 18_838_800_302)

    cluster.apply("model-c", "30Gi", "10Gi")
    await cluster.run(5)
    assert cluster.condition("model-c", "Scheduled") == (
        "False",
        "NoMatchingPods",
        (
            "no warm pod can hold this model, which needs 40.0 GiB on a card: h20 can offer at most 15.1 GiB, even "
            "with "
            "every engine on it at its floor (the card holds 95.1 GiB, and 80.0 GiB of it is promised to 2 instance(s))"
        ),
    )
    assert [e.limit_bytes for e in runtime.engines.values()] == [18_838_800_302, 18_838_800_302]


def awake(claim, footprint, floor, mapped, weight):
    return Occupant(claim, Seat(footprint, floor), mapped, Activity.SERVING, weight - 1)


def asleep(claim, footprint, floor, mapped=0, lent=None):
    return Occupant(claim, Seat(footprint, floor), mapped, Activity.ASLEEP, 0, lent)


VECTORS = [
    pytest.param(
        1000,
        [awake("grown", 200, 100, 250, 1), awake("newcomer", 200, 100, 0, 1)],
        {"grown": 375, "newcomer": 225},
        id="a newcomer beside a grown one",
    ),
    pytest.param(
        1000, [awake("a", 200, 100, 100, 1), awake("b", 200, 100, 100, 5)], {"a": 167, "b": 433}, id="idle and busy"
    ),
    pytest.param(
        1000, [awake("a", 200, 100, 0, 2), awake("b", 200, 100, 0, 1)], {"a": 367, "b": 233}, id="one request"
    ),
    pytest.param(
        1001,
        [asleep("a", 200, 100), awake("b", 100, 100, 0, 1), awake("c", 100, 100, 0, 1)],
        {"a": 100, "b": 251, "c": 250},
        id="the odd byte passes a sleeper by",
    ),
    pytest.param(
        1000,
        [awake("grown", 200, 100, 600, 1), awake("small", 100, 100, 0, 1)],
        {"grown": 600, "small": 100},
        id="exactly full",
    ),
    pytest.param(1000, [awake("grown", 200, 100, 900, 1)], None, id="more held than there is"),
    pytest.param(
        1000,
        [asleep("first", 200, 100), asleep("second", 200, 100, 150)],
        {"first": 100, "second": 150},
        id="all asleep",
    ),
    pytest.param(
        1000,
        [awake("awake", 300, 100, 50, 1), asleep("sleeper", 300, 100, 20, lent=60)],
        {"awake": 640, "sleeper": 20},
        id="a sleeper without reserve",
    ),
    pytest.param(
        1000,
        [awake("a", 100, 50, 50, 5), awake("b", 100, 50, 0, 1), awake("c", 200, 100, 100, 1)],
        {"a": 336, "b": 107, "c": 157},
        id="three of them",
    ),
]


@pytest.mark.acceptance("17")
@pytest.mark.parametrize(("usable", "occupants", "expected"), VECTORS)
def test_mc17_every_vector_holds_in_any_order(usable, occupants, expected):
    for order in itertools.permutations(occupants):
        card = Card("pod", usable, order)
        if expected is None:
            with pytest.raises(CannotDivide, match="more than it has"):
                divide(card)
        else:
            assert divide(card) == expected

"""Worked numbers of a division: every card here is divided to the byte, in whatever order its engines are named."""

import itertools

import pytest
from ledger_builders import GIB, asleep, card, serving, starting

from aibrix_operator.ledger.division import CannotDivide, divide

H20 = 102_102_110_044


def divided(usable, *on_it, reserved=0):
    """The one plan that every order of the engines gives."""
    plans = [divide(card(usable, *order, reserved=reserved)) for order in itertools.permutations(on_it)]
    assert all(plan == plans[0] for plan in plans)
    return plans[0]


def h20(claim, **state):
    return serving(claim, 30 * GIB, 10 * GIB, **state)


@pytest.mark.parametrize(
    ("on_it", "limits"),
    [
        pytest.param([h20("model-a")], {"model-a": 69_889_855_324}, id="a alone"),
        pytest.param(
            [h20("model-a"), h20("model-b")],
            {"model-a": 18_838_800_302, "model-b": 18_838_800_302},
            id="b joins, both idle",
        ),
        pytest.param(
            [h20("model-a", requests=4), h20("model-b")],
            {"model-a": 24_239_721_677, "model-b": 13_437_878_927},
            id="a with four in flight",
        ),
        pytest.param(
            [h20("model-a", requests=400), h20("model-b")],
            {"model-a": 24_239_721_677, "model-b": 13_437_878_927},
            id="more than four weigh no more",
        ),
        pytest.param(
            [h20("model-a", requests=None), h20("model-b")],
            {"model-a": 24_239_721_677, "model-b": 13_437_878_927},
            id="unreadable metrics weigh as the busiest",
        ),
        pytest.param(
            [asleep("model-a", 30 * GIB, 10 * GIB), h20("model-b")],
            {"model-a": 10_737_418_240, "model-b": 26_940_182_364},
            id="a asleep with its reserve",
        ),
    ],
)
def test_the_h20_card(on_it, limits):
    assert divided(H20, *on_it) == limits


def eighty(claim, **state):
    return serving(claim, 20 * GIB, 4 * GIB, **state)


@pytest.mark.parametrize(
    ("on_it", "limits"),
    [
        pytest.param([eighty("a"), eighty("b")], {"a": 20 * GIB, "b": 20 * GIB}, id="even"),
        pytest.param(
            [eighty("a", requests=4), eighty("b")], {"a": 32_928_082_603, "b": 10_021_590_357}, id="five to one"
        ),
        pytest.param([eighty("a")], {"a": 60 * GIB}, id="alone"),
        pytest.param([eighty("a"), asleep("b", 20 * GIB, 4 * GIB)], {"a": 36 * GIB, "b": 4 * GIB}, id="one asleep"),
        pytest.param(
            [eighty("b"), asleep("a", 20 * GIB, 4 * GIB)], {"b": 36 * GIB, "a": 4 * GIB}, id="the other asleep"
        ),
    ],
)
def test_the_eighty_gib_card(on_it, limits):
    assert divided(80 * GIB, *on_it) == limits


@pytest.mark.parametrize(
    ("usable", "on_it", "limits"),
    [
        pytest.param(
            1000,
            [serving("grown", 200, 100, mapped=250), starting("newcomer", 200, 100)],
            {"grown": 375, "newcomer": 225},
            id="a newcomer beside one that has grown",
        ),
        pytest.param(
            1000,
            [serving("a", 200, 100, mapped=100), serving("b", 200, 100, mapped=100, requests=4)],
            {"a": 167, "b": 433},
            id="one to five",
        ),
        pytest.param(
            1000,
            [serving("a", 200, 100, requests=1), serving("b", 200, 100)],
            {"a": 367, "b": 233},
            id="two to one, the odd byte to the first name",
        ),
        pytest.param(
            1001,
            [asleep("a", 200, 100), serving("b", 100, 100), serving("c", 100, 100)],
            {"a": 100, "b": 251, "c": 250},
            id="no odd byte for a sleeper",
        ),
        pytest.param(
            1000,
            [serving("grown", 200, 100, mapped=600), serving("small", 100, 100)],
            {"grown": 600, "small": 100},
            id="exactly full",
        ),
        pytest.param(
            1000,
            [asleep("first", 200, 100), asleep("second", 200, 100, mapped=150)],
            {"first": 100, "second": 150},
            id="all asleep, the rest unassigned",
        ),
        pytest.param(
            1000,
            [serving("awake", 300, 100, mapped=50), asleep("sleeper", 300, 100, mapped=20, lent=60)],
            {"awake": 640, "sleeper": 20},
            id="a sleeper without reserve",
        ),
        pytest.param(
            1000,
            [
                serving("a", 100, 50, mapped=50, requests=4),
                starting("b", 100, 50),
                serving("c", 200, 100, mapped=100),
            ],
            {"a": 336, "b": 107, "c": 157},
            id="a newcomer between a busy and an idle one",
        ),
        pytest.param(1000, [], {}, id="nobody"),
        pytest.param(
            1000,
            [serving("lender", 300, 100, mapped=150), starting("waker", 300, 100, mapped=20)],
            {"lender": 225, "waker": 175},
            id="a waker weighs one and keeps its floor",
        ),
        pytest.param(
            1000,
            [serving("a", 300, 100), serving("b", 300, 100), asleep("waker", 300, 100, mapped=20, lent=60)],
            {"a": 170, "b": 170, "waker": 20},
            id="crowded, planned as if the wake were not asked for",
        ),
    ],
)
def test_small_cards(usable, on_it, limits):
    assert divided(usable, *on_it) == limits


def test_room_held_for_another_claim_is_not_given_as_kv():
    assert divided(1000, serving("a", 200, 100), serving("b", 200, 100), reserved=150) == {"a": 225, "b": 225}


def test_a_neighbour_gives_way_to_a_newcomer():
    assert divided(1000, serving("neighbour", 300, 100, mapped=100), starting("newcomer", 300, 100)) == {
        "neighbour": 200,
        "newcomer": 200,
    }


@pytest.mark.parametrize(
    ("usable", "on_it", "message"),
    [
        pytest.param(
            1000,
            [serving("grown", 200, 100, mapped=900)],
            "the engines on this card hold 0.0 GiB more than it has",
            id="a hundred bytes too many",
        ),
        pytest.param(
            80 * GIB,
            [eighty("a", mapped=40 * GIB), eighty("b", mapped=2 * GIB)],
            "the engines on this card hold 4.0 GiB more than it has",
            id="four GiB too many",
        ),
        pytest.param(
            1000,
            [serving("a", 901, 100)],
            "the engines on this card hold 0.0 GiB more than it has",
            id="one byte too many",
        ),
        pytest.param(1000, [serving("free", 100, -1)], "free declares no per-GPU cost", id="a floor below zero"),
        pytest.param(1000, [serving("free", 0, 100)], "free declares no per-GPU cost", id="no footprint"),
        pytest.param(
            10,
            [serving("a", 200, 100), serving("free", 200, 0)],
            "free declares no per-GPU cost",
            id="no floor, and full",
        ),
        pytest.param(1000, [serving("free", -1, 100)], "free declares no per-GPU cost", id="a footprint below zero"),
    ],
)
def test_a_card_without_a_plan_says_why(usable, on_it, message):
    with pytest.raises(CannotDivide) as refused:
        divided(usable, *on_it)
    assert str(refused.value) == message

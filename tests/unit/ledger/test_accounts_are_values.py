"""Everything in the ledger is a value: equal ones are one key, none can be changed, and what is derived is not told."""

import dataclasses

import pytest
from ledger_builders import card, serving

from aibrix_operator.ledger.card import Seat
from aibrix_operator.ledger.division import Held, RoundVerdict
from aibrix_operator.ledger.placement import Candidate, Obstacle, Placed, Refused

MAKE = [
    pytest.param(make, id=type(make()).__name__)
    for make in (
        lambda: Seat(300, 100),
        lambda: serving("a", 300, 100),
        lambda: card(1000, serving("a", 300, 100)),
        lambda: Held("a", 200),
        lambda: RoundVerdict(divide=True, short=frozenset({"a"})),
        lambda: Obstacle.topology(1, 2),
        lambda: Candidate("pod-a", card(1000)),
        lambda: Placed("pod-a"),
        lambda: Refused("NoMatchingPods", "no room"),
    )
]


@pytest.mark.parametrize("make", MAKE)
def test_equal_values_are_one_key_and_cannot_be_changed(make):
    one, other = make(), make()
    assert one is not other
    assert {one: "found"}[other] == "found"
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, dataclasses.fields(one)[0].name, None)
    assert not hasattr(one, "__dict__")


@pytest.mark.parametrize("make", MAKE)
def test_what_is_derived_is_neither_compared_nor_shown(make):
    given = [field.name for field in dataclasses.fields(make()) if field.init]
    assert [field.name for field in dataclasses.fields(make()) if field.compare] == given
    assert [field.name for field in dataclasses.fields(make()) if field.repr] == given

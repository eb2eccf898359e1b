"""Which nodes a sandbox has, and who has which address and card on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.sandbox import fleet
from aibrix_operator.sandbox.fleet import NodeShape
from aibrix_operator.sandbox.node_slots import NodeSlots, Place
from aibrix_operator.sim import card


@pytest.mark.parametrize(
    ("cards", "nodes", "expected"),
    [
        pytest.param(["h20"], None, [("h20", 1)], id="one card, one node"),
        pytest.param(["h20", "l40s", "H20"], None, [("h20", 2), ("l40s", 1)], id="one node a kind"),
        pytest.param(["h20"] * 5, 2, [("h20", 3), ("h20", 2)], id="the first nodes take one more"),
        pytest.param(["h20"] * 4 + ["l40s"], 3, [("h20", 2), ("h20", 2), ("l40s", 1)], id="the fullest kind is split"),
        pytest.param(["h20"], 2, [("h20", 1), ("h20", 0)], id="a node without a card"),
    ],
)
def test_cards_are_spread_over_nodes(cards, nodes, expected):
    assert [(node.card_kind, node.cards) for node in fleet.plan_nodes(cards, nodes)] == expected


@pytest.mark.parametrize(
    ("cards", "nodes", "reason"),
    [
        pytest.param([], None, "at least one card", id="no card"),
        pytest.param(["24gi"], None, "'24gi' is neither a positive size", id="a size in small letters"),
        pytest.param(["h20", "l40s"], 1, "2 kinds of cards need 2 to", id="two kinds in one server"),
        pytest.param(["h20"], fleet.MAX_NODES + 1, "not 201", id="more nodes than addresses"),
        pytest.param(["h20"] * (fleet.MAX_CARDS_PER_NODE + 1), 1, "at most 200 cards", id="more cards than Pods"),
    ],
)
def test_what_cannot_be_spread_is_refused_with_the_figures(cards, nodes, reason):
    with pytest.raises(ValueError, match=reason):
        fleet.plan_nodes(cards, nodes)


@given(st.lists(st.sampled_from(["h20", "l40s", "24Gi"]), min_size=1, max_size=40), st.integers(0, 20))
def test_no_card_is_lost_and_no_node_is_named_twice(cards, more):
    nodes = fleet.plan_nodes(cards, len(set(cards)) + more)
    assert sum(node.cards for node in nodes) == len(cards)
    assert len({node.name for node in nodes}) == len({node.index for node in nodes}) == len(set(cards)) + more
    assert all(0 <= max(alike) - min(alike) <= 1 for alike in _cards_by_kind(nodes).values())


def _cards_by_kind(nodes: tuple[NodeShape, ...]) -> dict[str, list[int]]:
    alike: dict[str, list[int]] = {}
    for node in nodes:
        alike.setdefault(node.card_kind, []).append(node.cards)
    return alike


def test_a_card_of_any_size_stays_one_that_can_be_made():
    (node,) = fleet.plan_nodes(["24Gi", "24Gi"], None)
    assert card.parse_card(node.card_kind).usable_bytes == 24 * 1024**3


def test_the_cards_are_described_by_kind():
    assert fleet.describe_cards(fleet.plan_nodes(["h20", "l40s", "h20"], 3)) == "2 × h20, 1 × l40s"


def test_a_pod_gets_the_lowest_free_address_and_cards():
    slots = NodeSlots("127.20.1", cards=3)
    assert slots.take("a", 1) == Place("127.20.1.1", (0,))
    assert slots.take("b", 2) == Place("127.20.1.2", (1, 2))
    slots.give_back("a")
    assert slots.take("c", 1) == Place("127.20.1.1", (0,))


def test_a_pod_waits_while_another_has_its_card():
    slots = NodeSlots("127.20.1", cards=1)
    slots.take("a", 1)
    assert slots.take("b", 1) is None
    assert slots.held_by("b") is None
    slots.give_back("a")
    assert slots.take("b", 1) == Place("127.20.1.1", (0,))


def test_what_an_earlier_agent_gave_is_not_given_again():
    slots = NodeSlots("127.20.1", cards=2)
    slots.restore("a", Place("127.20.1.1", (0,)))
    assert slots.take("b", 1) == Place("127.20.1.2", (1,))


def test_a_node_has_254_addresses():
    slots = NodeSlots("127.20.1", cards=0)
    assert all(slots.take(str(number), 0) is not None for number in range(254))
    assert slots.take("one more", 0) is None

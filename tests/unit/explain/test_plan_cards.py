"""The cards of a plan, as the command line writes them."""

import pytest

from aibrix_operator.explain.racks import PlannedPod, UnknownCards, parse_pods
from aibrix_operator.sim import card

H20 = card.parse_card("h20").usable_bytes
GIB = 1 << 30


@pytest.mark.parametrize(
    ("texts", "pods"),
    [
        pytest.param(["H20"], [("h20-1", "", 1, H20)], id="one card"),
        pytest.param(["2xH20"], [("h20-1", "", 1, H20), ("h20-2", "", 1, H20)], id="two cards"),
        pytest.param(["2x2xH20"], [("2xh20-1", "", 2, H20), ("2xh20-2", "", 2, H20)], id="two pods of two GPUs"),
        pytest.param(["1x24Gi"], [("24gi-1", "", 1, 24 * GIB)], id="a usable size"),
        pytest.param(["big=1xH20"], [("big-h20-1", "big", 1, H20)], id="a pool"),
        pytest.param(
            ["1xh20", "1xH20", "1x24Gi"],
            [("24gi-1", "", 1, 24 * GIB), ("h20-1", "", 1, H20), ("h20-2", "", 1, H20)],
            id="one kind named twice is numbered on",
        ),
    ],
)
def test_what_is_written_is_what_there_is(texts, pods):
    assert [(p.name, p.pool, p.gpus, p.usable_bytes) for p in parse_pods(texts)] == pods


def test_names_sort_as_their_numbers_do():
    pods = parse_pods(["12xH20"])
    assert [p.name for p in pods] == [f"h20-{n:02}" for n in range(1, 13)]


@pytest.mark.parametrize("kind", sorted(card.PRESETS))
def test_every_preset_is_known_in_any_case(kind):
    assert parse_pods([f"1x{kind.upper()}"]) == (
        PlannedPod(f"{kind}-1", "", kind.upper(), 1, card.parse_card(kind).usable_bytes),
    )


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        pytest.param(["8xH21"], "card 'H21' is neither a positive size nor one of h20", id="unknown kind"),
        pytest.param(["0xH20"], "1 to 1000 Pods", id="no pod"),
        pytest.param(["1x17xH20"], "of 1 to 16 GPUs each", id="too many GPUs"),
        pytest.param(["H20x8"], "should read like 8xH20", id="the wrong way round"),
        pytest.param([""], "should read like 8xH20", id="nothing"),
        pytest.param(["big=H20", "H20"], "either all --cards name a pool", id="some with a pool"),
        pytest.param([], "needs cards", id="no cards"),
    ],
)
def test_what_names_no_cards_is_refused_with_its_text(texts, told):
    with pytest.raises(UnknownCards, match=told):
        parse_pods(texts)

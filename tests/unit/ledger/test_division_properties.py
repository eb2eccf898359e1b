"""What holds for every division: no byte lost or given twice, and nobody squeezed below what must stay."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from ledger_builders import cards, occupants

from aibrix_operator.ledger import audit
from aibrix_operator.ledger.card import Activity, Card
from aibrix_operator.ledger.division import CannotDivide, divide, take_back_bytes


@given(cards())
def test_footprints_and_limits_sum_to_what_is_usable_and_not_reserved(card):
    try:
        limits = divide(card)
    except CannotDivide:
        assert card.room_now_bytes < 0
        return
    assert limits.keys() == {o.claim for o in card.occupants}
    keeping = [o for o in card.occupants if o.lent_footprint_bytes is None]
    lent = [o.lent_footprint_bytes for o in card.occupants if o.lent_footprint_bytes is not None]
    total = sum(o.seat.footprint_bytes + limits[o.claim] for o in keeping) + sum(lent)
    if any(o.weight for o in card.occupants):
        assert total == card.usable_bytes - card.reserved_bytes
    else:
        assert total == card.held_bytes <= card.usable_bytes - card.reserved_bytes


@given(cards())
def test_nobody_is_limited_below_what_it_keeps_and_sleepers_to_exactly_that(card):
    if card.room_now_bytes < 0:
        return
    limits = divide(card)
    for occupant in card.occupants:
        assert limits[occupant.claim] >= occupant.keep_bytes
        if occupant.activity is Activity.ASLEEP:
            assert limits[occupant.claim] == occupant.keep_bytes


@given(cards())
def test_a_plan_breaks_no_law(card):
    if card.room_now_bytes >= 0:
        assert audit.violations(card, divide(card)) == []


@given(cards(), st.randoms(use_true_random=False))
def test_the_order_of_the_engines_does_not_matter(card, random):
    shuffled = list(card.occupants)
    random.shuffle(shuffled)
    again = Card(card.pod, card.usable_bytes, tuple(shuffled), card.reserved_bytes)
    assert again == card
    if card.room_now_bytes >= 0:
        assert list(divide(again).items()) == list(divide(card).items())


@given(cards())
def test_among_equals_nobody_gets_two_bytes_more_and_more_requests_never_give_less(card):
    if card.room_now_bytes < 0:
        return
    limits = divide(card)
    spare = {o.claim: limits[o.claim] - o.keep_bytes for o in card.occupants}
    for one, other in itertools.combinations(card.occupants, 2):
        if one.weight == other.weight:
            assert spare[one.claim] - spare[other.claim] in {0, 1}
        elif one.weight > other.weight:
            assert spare[one.claim] >= spare[other.claim]


@given(cards(), occupants(claim="newcomer"))
def test_charging_and_releasing_an_instance_is_identity(card, newcomer):
    charged = card.with_occupant(newcomer)
    assert charged.promised_bytes == card.promised_bytes + newcomer.promised_bytes
    assert charged.held_bytes == card.held_bytes + newcomer.held_bytes
    assert charged.without_occupant("newcomer") == card
    assert charged.with_occupant(newcomer) == charged


@given(before=st.integers(-1, 1000), record=st.none() | st.integers(0, 1000), written=st.integers(0, 1000))
def test_taking_back_never_shrinks_and_never_passes_the_record(before, record, written):
    back = take_back_bytes(before, record, written)
    assert back >= written
    assert back <= max(before, written)
    if record:
        assert back <= max(record, written)

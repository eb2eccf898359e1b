"""What an instance is charged on both accounts of its card, and what room that leaves."""

import pytest
from hypothesis import given
from ledger_builders import GIB, asleep, card, cards, serving, starting

from aibrix_operator.ledger.card import Activity, Card, Occupant, Seat

SEAT = Seat(300, 100)


@pytest.mark.parametrize(
    ("occupant", "promised", "held", "keep", "weight"),
    [
        pytest.param(Occupant("a", SEAT), 400, 400, 100, 1, id="recorded, not seen yet"),
        pytest.param(starting("a", 300, 100, mapped=150), 400, 450, 150, 1, id="booting, mapping over its floor"),
        pytest.param(serving("a", 300, 100, mapped=50), 400, 400, 100, 1, id="idle, mapping under its floor"),
        pytest.param(serving("a", 300, 100, mapped=150, requests=2), 400, 450, 150, 3, id="two requests"),
        pytest.param(serving("a", 300, 100, requests=4), 400, 400, 100, 5, id="four requests"),
        pytest.param(serving("a", 300, 100, requests=50), 400, 400, 100, 5, id="fifty requests"),
        pytest.param(serving("a", 300, 100, requests=None), 400, 400, 100, 5, id="unreadable metrics"),
        pytest.param(
            Occupant("a", SEAT, activity=Activity.STARTING, requests=None), 400, 400, 100, 1, id="starting, unreadable"
        ),
        pytest.param(asleep("a", 300, 100, mapped=20), 400, 400, 100, 0, id="asleep with its reserve"),
        pytest.param(asleep("a", 300, 100, mapped=120), 400, 420, 120, 0, id="asleep, still mapping over its floor"),
        pytest.param(asleep("a", 300, 100, mapped=20, lent=60), 60, 60, 20, 0, id="asleep without reserve"),
        pytest.param(asleep("a", 300, 100, lent=1), 1, 1, 0, 0, id="holds next to nothing asleep"),
        pytest.param(asleep("a", 300, 100, lent=500), 500, 500, 0, 0, id="holds more asleep than its seat"),
    ],
)
def test_an_instance_is_charged_by_what_it_does(occupant, promised, held, keep, weight):
    assert (occupant.promised_bytes, occupant.held_bytes, occupant.keep_bytes, occupant.weight) == (
        promised,
        held,
        keep,
        weight,
    )


def test_room_ever_counts_promises_and_room_now_what_is_held():
    account = card(1000, serving("a", 200, 100, mapped=350), asleep("b", 200, 100, lent=60), reserved=40)
    assert (account.promised_bytes, account.held_bytes) == (360, 610)
    assert (account.room_ever_bytes, account.room_now_bytes) == (600, 350)


@pytest.mark.parametrize(
    ("seat", "fits", "could_ever", "when_empty"),
    [
        pytest.param(Seat(300, 50), True, True, True, id="fills what is free"),
        pytest.param(Seat(300, 51), False, True, True, id="a byte more waits for a neighbour"),
        pytest.param(Seat(600, 0), False, True, True, id="fills what can be promised"),
        pytest.param(Seat(600, 1), False, False, True, id="a byte more never"),
        pytest.param(Seat(900, 100), False, False, True, id="as large as the card"),
        pytest.param(Seat(900, 101), False, False, False, id="larger than the card"),
    ],
)
def test_a_seat_must_find_room_on_both_accounts(seat, fits, could_ever, when_empty):
    account = card(1000, serving("a", 200, 100, mapped=350), asleep("b", 200, 100, lent=60), reserved=40)
    assert (account.fits(seat), account.could_ever_hold(seat), account.holds_when_empty(seat)) == (
        fits,
        could_ever,
        when_empty,
    )


@given(cards())
def test_nobody_holds_less_than_it_was_promised_so_room_now_never_passes_room_ever(account):
    assert account.room_now_bytes <= account.room_ever_bytes


def test_a_card_sorts_its_instances_so_that_equal_accounts_are_equal():
    a, b = serving("a", 200, 100), serving("b", 200, 100)
    assert card(1000, b, a) == card(1000, a, b)
    assert card(1000, b, a).occupants == (a, b)


def test_charging_a_claim_again_replaces_its_charge():
    account = card(1000, serving("a", 200, 100), serving("b", 200, 100)).with_occupant(serving("a", 300, 100))
    assert [o.claim for o in account.occupants] == ["a", "b"]
    assert account.promised_bytes == 700


def test_discharging_a_claim_leaves_the_others_and_discharging_a_stranger_all():
    a, b, c = (serving(name, 200, 100) for name in "abc")
    account = card(1000, a, b, c)
    assert account.without_occupant("b").occupants == (a, c)
    assert account.without_occupant("stranger") == account


def test_an_instance_that_was_not_seen_yet_maps_nothing_and_has_no_request():
    unseen = Occupant("a", SEAT)
    assert (unseen.kv_mapped_bytes, unseen.requests, unseen.activity) == (0, 0, Activity.STARTING)
    assert card(1000).reserved_bytes == Card("pod-a", 1000).reserved_bytes == 0


def test_a_third_8b_model_fits_an_h20_when_a_sleeper_lends_its_reserve():
    lent = round(1.3 * GIB)
    account = card(102_102_110_044, asleep("a", 30 * GIB, 10 * GIB, lent=lent), serving("b", 30 * GIB, 10 * GIB))
    assert account.fits(Seat(30 * GIB, 10 * GIB))
    assert account.room_ever_bytes == 102_102_110_044 - 40 * GIB - lent


def test_a_claim_charged_twice_is_refused():
    again = "".join(("claim", "-a"))  # the same name, told by another object
    with pytest.raises(ValueError, match="claim-a is charged twice on pod-a"):
        card(1000, serving("claim-a", 200, 100), serving("b", 1, 1), asleep(again, 200, 100))
    account = card(1000, serving("claim-a", 200, 100), serving("b", 1, 1))
    assert account.with_occupant(asleep(again, 200, 100)).promised_bytes == 302
    assert account.without_occupant(again).promised_bytes == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"kv_mapped_bytes": -1}, "a maps -1 bytes", id="mapped below zero"),
        pytest.param({"lent_footprint_bytes": 60}, "only a sleeper", id="a starting engine without reserve"),
        pytest.param(
            {"lent_footprint_bytes": 0, "activity": Activity.ASLEEP},
            "unmeasured is None",
            id="a sleeper holding nothing",
        ),
        pytest.param(
            {"lent_footprint_bytes": -1, "activity": Activity.ASLEEP},
            "a holds -1 bytes asleep",
            id="a sleeper holding less than nothing",
        ),
    ],
)
def test_an_instance_that_no_reading_can_mean_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Occupant("a", SEAT, **fields)

"""Which of the Pods that fit takes a claim."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_builders import candidate_lists, card, seats, serving

from aibrix_operator.ledger.card import Seat
from aibrix_operator.ledger.placement import Candidate, Obstacle, ObstacleKind, Placed, Refused, place, rank

SEAT = Seat(300, 100)


def pod(name, account=None, **facts):
    return Candidate(name, card(1000, pod=name) if account is None else account, **facts)


# Each row is better than the next ones only by the step that it is named for.
LADDER = [
    pytest.param(pod("b", artifact_cached=True, state_known=False), pod("a"), id="artifact cached before state known"),
    pytest.param(pod("b", memory_known=False), pod("a", state_known=False), id="state known before memory known"),
    pytest.param(Candidate("b", None), pod("a", memory_known=False), id="memory known before room known"),
    pytest.param(pod("b", engines_awake=9), Candidate("a", None), id="room known before fewest awake"),
    pytest.param(
        pod("b", card(1000, serving("x", 1, 1), pod="b"), engines_awake=1),
        pod("a", engines_awake=2),
        id="fewest awake before most room",
    ),
    pytest.param(
        pod("b", free_bytes=1),
        pod("a", card(1000, serving("x", 1, 1), pod="a"), free_bytes=9),
        id="most room before most free memory",
    ),
    pytest.param(
        pod("b", free_bytes=9, kv_used_bytes=9),
        pod("a", free_bytes=8, kv_used_bytes=1),
        id="free memory before KV used",
    ),
    pytest.param(pod("b", kv_used_bytes=1, engines=9), pod("a", kv_used_bytes=2), id="KV used before engines"),
    pytest.param(pod("b", engines=1, instances=9), pod("a", engines=2), id="engines before instances"),
    pytest.param(pod("b", instances=1), pod("a", instances=2), id="instances before the name"),
    pytest.param(pod("a"), pod("b"), id="the lowest name last"),
]


@pytest.mark.parametrize(("better", "worse"), LADDER)
def test_each_step_of_the_order_rules_over_the_next(better, worse):
    assert rank(better) < rank(worse)
    assert place("m", SEAT, [worse, better]) == place("m", SEAT, [better, worse]) == Placed(better.pod)


@pytest.mark.parametrize(
    "unfit",
    [
        pytest.param(pod("a", card(399, pod="a"), artifact_cached=True), id="too small"),
        pytest.param(pod("a", card(1000, serving("x", 500, 101), pod="a"), artifact_cached=True), id="promised away"),
        pytest.param(
            pod("a", card(1000, serving("x", 100, 100, mapped=501), pod="a"), artifact_cached=True), id="held by others"
        ),
        pytest.param(pod("a", card(1000, reserved=601, pod="a"), artifact_cached=True), id="held for another claim"),
        pytest.param(
            pod("a", obstacle=Obstacle(ObstacleKind.HOLE, "its runtime did not answer"), artifact_cached=True),
            id="a hole",
        ),
        pytest.param(Candidate("a", None, Obstacle.topology(2, 1), artifact_cached=True), id="another topology"),
    ],
)
def test_a_pod_that_does_not_fit_is_passed_over_however_well_it_ranks(unfit):
    assert place("m", SEAT, [unfit, pod("z", engines_awake=9)]) == Placed("z")
    assert isinstance(place("m", SEAT, [unfit]), Refused)


def test_a_seat_that_fills_a_card_to_the_byte_fits_and_one_byte_more_does_not():
    full = [pod("a", card(1000, serving("x", 300, 300), pod="a"))]
    assert place("m", SEAT, full) == Placed("a")
    assert isinstance(place("m", Seat(300, 101), full), Refused)


def test_a_pod_without_cards_takes_any_claim():
    assert place("m", Seat(1 << 49, 1 << 49), [Candidate("mock", None)]) == Placed("mock")


@given(candidate_lists())
def test_rank_is_a_total_order(candidates):
    assert len({rank(c) for c in candidates}) == len(candidates)
    for one, other in itertools.combinations(candidates, 2):
        assert (rank(one) < rank(other)) is not (rank(other) < rank(one))


@given(candidate_lists(), seats(), st.randoms(use_true_random=False))
def test_placement_chooses_the_best_pod_that_fits_in_whatever_order_they_come(candidates, seat, random):
    fitting = [c for c in candidates if c.obstacle is None and (c.card is None or c.card.fits(seat))]
    chosen = place("m", seat, candidates)
    random.shuffle(candidates)
    assert place("m", seat, candidates) == chosen
    if fitting:
        assert chosen == Placed(min(fitting, key=rank).pod)
    else:
        assert isinstance(chosen, Refused)


@given(candidate_lists(), seats())
def test_a_placed_claim_leaves_no_account_below_zero(candidates, seat):
    chosen = place("m", seat, candidates)
    if isinstance(chosen, Placed):
        account = next(c.card for c in candidates if c.pod == chosen.pod)
        if account is not None:
            after = account.with_occupant(serving("m", seat.footprint_bytes, seat.kv_floor_bytes))
            assert min(after.room_ever_bytes, after.room_now_bytes) >= 0


def test_a_candidate_with_another_card_has_another_rank():
    before = pod("a")
    after = dataclasses.replace(before, card=card(1000, serving("x", 300, 100), pod="a"))
    assert (before.largest_seat_bytes, after.largest_seat_bytes) == (1000, 600)
    assert rank(before) < rank(after)

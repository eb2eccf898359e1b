"""When the ten-second round divides a card, and what it tells the next round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_builders import GIB, MIB, asleep, card, cards, serving, starting

from aibrix_operator.ledger.division import CannotDivide, Held, RoundVerdict, divide, round_verdict, threshold_bytes

NOBODY: frozenset[str] = frozenset()


def eighty(claim, **state):
    return serving(claim, 20 * GIB, 4 * GIB, **state)


def even_held(**waiting):
    """Both engines of the 80 GiB card at 20 GiB and recorded so."""
    return [Held(claim, 20 * GIB, 20 * GIB, waiting.get(claim, 0)) for claim in ("a", "b")]


def verdict(account, held, short_before=NOBODY):
    return round_verdict(account, held, divide(account), short_before)


@pytest.mark.parametrize(
    ("usable", "threshold"),
    [
        pytest.param(24 * GIB, 512 * MIB, id="a small card"),
        pytest.param(51_200 * MIB, 512 * MIB, id="where both are equal"),
        pytest.param(102_102_110_044, 1_021_021_100, id="an H20"),
        pytest.param(0, 512 * MIB, id="nothing usable"),
    ],
)
def test_the_threshold_is_half_a_gib_or_a_hundredth_of_the_card(usable, threshold):
    assert threshold_bytes(usable) == threshold


@pytest.mark.parametrize(
    ("a", "waiting"),
    [
        pytest.param(eighty("a", requests=4, mapped=10 * GIB), 0, id="maps half of its limit"),
        pytest.param(eighty("a", requests=4), 1, id="has a request waiting"),
        pytest.param(eighty("a", requests=None), 0, id="serves with unreadable metrics"),
    ],
)
def test_a_short_engine_is_given_more_in_the_second_round(a, waiting):
    account = card(80 * GIB, a, eighty("b"))
    first = verdict(account, even_held(a=waiting))
    assert first == RoundVerdict(divide=False, short=frozenset({"a"}))
    assert verdict(account, even_held(a=waiting), first.short) == RoundVerdict(divide=True, short=frozenset({"a"}))


def test_an_engine_short_in_another_round_than_its_neighbour_waits_for_its_own_second():
    account = card(80 * GIB, eighty("a", requests=4), eighty("b"))
    assert not verdict(account, even_held(a=1), frozenset({"b"})).divide


def test_an_engine_that_stays_short_gets_one_division_over_twelve_rounds():
    account = card(80 * GIB, eighty("a", requests=4, mapped=18 * GIB), eighty("b"))
    held, short, divisions = even_held(), NOBODY, 0
    for _ in range(12):
        judged = verdict(account, held, short)
        short = judged.short
        if judged.divide:
            divisions += 1
            held = [Held(claim, limit, limit) for claim, limit in divide(account).items()]
    assert divisions == 1


@pytest.mark.parametrize(
    ("a", "waiting"),
    [
        pytest.param(eighty("a", requests=4, mapped=10 * GIB - 1), 0, id="a byte under half of its limit"),
        pytest.param(eighty("a", requests=4), 0, id="running without waiting"),
        pytest.param(eighty("a"), 1, id="short, and the plan gives nothing more"),
    ],
)
def test_nobody_short_writes_nothing(a, waiting):
    account = card(80 * GIB, a, eighty("b"))
    both = frozenset({"a", "b"})
    assert verdict(account, even_held(a=waiting), both) == RoundVerdict(divide=False, short=NOBODY)


def test_an_engine_that_would_gain_just_the_threshold_is_short():
    account = card(80 * GIB, eighty("a"), eighty("b"))
    held = [Held("a", 20 * GIB - threshold_bytes(80 * GIB), 20 * GIB, waiting=1), Held("b", 20 * GIB, 20 * GIB)]
    assert verdict(account, held).short == {"a"}


def test_an_engine_of_which_no_more_is_known_has_no_record_and_nothing_waiting():
    assert Held("a", 200) == Held("a", 200, record_bytes=0, waiting=0)


def test_half_of_an_odd_limit_is_rounded_up():
    account = card(80 * GIB, eighty("a", requests=4, mapped=10 * GIB), eighty("b"))
    odd = [Held("a", 20 * GIB + 1, 20 * GIB + 1), Held("b", 20 * GIB, 20 * GIB)]
    assert verdict(account, odd).short == NOBODY


def test_a_sleeper_and_an_engine_without_a_limit_are_never_short():
    account = card(80 * GIB, asleep("a", 20 * GIB, 4 * GIB, mapped=30 * GIB), eighty("b", requests=4))
    held = [Held("a", 8 * GIB, 8 * GIB, waiting=3), Held("b", 0, 0, waiting=3)]
    assert verdict(account, held).short == NOBODY


def test_a_limit_other_than_its_record_is_left_unfinished():
    account = card(80 * GIB, eighty("a", requests=1), eighty("b", requests=1))
    for limit, record in ((10 * GIB, 20 * GIB), (18 * GIB, 16 * GIB)):
        unfinished = [Held("a", limit, record), Held("b", 20 * GIB, 20 * GIB)]
        assert verdict(account, unfinished) == RoundVerdict(divide=True, short=NOBODY)


def test_a_record_far_from_a_limit_that_is_as_planned_is_left_unfinished():
    """A shrunk engine was not given back what it had, and then the plan became what it is held to."""
    account = card(80 * GIB, eighty("a"), eighty("b"))
    large = threshold_bytes(80 * GIB)
    for record, divides in ((20 * GIB + large, True), (20 * GIB - large, True), (20 * GIB + large - 1, False)):
        assert verdict(account, [Held("a", 20 * GIB, record), Held("b", 20 * GIB, 20 * GIB)]).divide is divides
    assert not verdict(account, [Held("a", 20 * GIB, 0), Held("b", 20 * GIB, 20 * GIB)]).divide


def test_a_limit_without_a_record_is_left_unfinished():
    account = card(80 * GIB, eighty("a", requests=1), eighty("b", requests=1))
    assert verdict(account, [Held("a", 60 * GIB), Held("b", 20 * GIB, 20 * GIB)]).divide


def test_an_engine_that_may_map_nothing_is_left_unfinished():
    account = card(80 * GIB, eighty("a"), eighty("b"))
    assert verdict(account, [Held("a", 0, 20 * GIB), Held("b", 20 * GIB, 20 * GIB)]).divide


@pytest.mark.parametrize(
    "held",
    [
        pytest.param([Held("a", -1, 10 * GIB), Held("b", 20 * GIB, 20 * GIB)], id="no segment"),
        pytest.param([Held("stranger", 1, 2), *even_held()], id="not on this card"),
        pytest.param([], id="nothing read"),
    ],
)
def test_what_cannot_be_written_is_no_reason_to_divide(held):
    assert verdict(card(80 * GIB, eighty("a"), eighty("b")), held) == RoundVerdict(divide=False, short=NOBODY)


def test_an_engine_that_the_plan_leaves_out_is_passed_over():
    account = card(80 * GIB, eighty("a"), eighty("b"))
    assert not round_verdict(account, [Held("a", 1, 2)], {"b": 20 * GIB}, NOBODY).divide


@pytest.mark.parametrize(
    ("a", "limit", "divides"),
    [
        pytest.param(eighty("a"), 10 * GIB - 1, True, id="less than half of its plan"),
        pytest.param(eighty("a"), 10 * GIB, False, id="half of its plan"),
        pytest.param(eighty("a", requests=1), 8 * GIB, False, id="a request in flight"),
        pytest.param(starting("a", 20 * GIB, 4 * GIB), 10 * GIB - 1, True, id="an engine that starts has none"),
    ],
)
def test_a_card_at_rest_is_evened_out(a, limit, divides):
    account = card(80 * GIB, a, eighty("b"))
    assert verdict(account, [Held("a", limit, limit), Held("b", 20 * GIB, 20 * GIB)]).divide is divides


def test_unreadable_metrics_are_no_rest():
    account = card(80 * GIB, eighty("a"), eighty("b", requests=None))
    held = [Held("a", 1 * GIB, 1 * GIB), Held("b", 39 * GIB, 39 * GIB)]
    assert verdict(account, held) == RoundVerdict(divide=False, short=NOBODY)


def test_a_drift_below_the_threshold_is_left_alone_whatever_the_cause():
    account = card(80 * GIB, eighty("a"), eighty("b"))
    small = threshold_bytes(80 * GIB) - 1
    drifted = [Held("a", 20 * GIB - small, 20 * GIB, waiting=1), Held("b", 20 * GIB + small, 20 * GIB)]
    assert verdict(account, drifted, frozenset({"a", "b"})) == RoundVerdict(divide=False, short=NOBODY)


def test_a_drift_of_the_threshold_is_written():
    account = card(80 * GIB, eighty("a"), eighty("b"))
    large = threshold_bytes(80 * GIB)
    drifted = [Held("a", 20 * GIB - large, 20 * GIB), Held("b", 20 * GIB, 20 * GIB)]
    assert verdict(account, drifted).divide


@given(cards(), st.data())
def test_a_card_held_and_recorded_as_planned_is_never_divided_again(account, data):
    try:
        plan = divide(account)
    except CannotDivide:
        return
    held = [Held(claim, limit, limit, waiting=data.draw(st.integers(0, 2))) for claim, limit in plan.items()]
    assert round_verdict(account, held, plan, frozenset(plan)) == RoundVerdict(divide=False, short=NOBODY)


@pytest.mark.parametrize(
    ("more", "divides"), [pytest.param(0, False, id="full"), pytest.param(1, True, id="overdrawn")]
)
def test_a_card_whose_limits_sum_to_more_than_it_has_is_divided_at_any_rate(more, divides):
    account = card(80 * GIB, eighty("a"), eighty("b"))
    held = [Held("a", 20 * GIB + more, 20 * GIB + more), Held("b", 20 * GIB, 20 * GIB)]
    assert verdict(account, held) == RoundVerdict(divides, NOBODY)


def test_a_sleeper_that_lends_its_seat_counts_with_what_it_holds():
    lender = asleep("b", 20 * GIB, 4 * GIB, lent=2 * GIB)
    account = card(80 * GIB, eighty("a"), lender)
    assert not verdict(account, [Held("a", 58 * GIB, 58 * GIB), Held("b", 4 * GIB, 4 * GIB)]).divide
    assert verdict(account, [Held("a", 58 * GIB + 1, 58 * GIB + 1), Held("b", 4 * GIB, 4 * GIB)]).divide

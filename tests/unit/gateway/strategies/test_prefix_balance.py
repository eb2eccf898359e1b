"""prefix-balance: a prompt's cache is followed while that is cheaper than what its engine was given too much."""

from __future__ import annotations

import math

import pytest
from strategy_builders import NOW_S, drawn, make_ask, make_model, make_request

from aibrix_operator.gateway.knobs import Knobs, PrefixBalanceKnobs
from aibrix_operator.gateway.prefix_blocks import PrefixSettings, hashes_of, root
from aibrix_operator.gateway.prefix_table import NS, PrefixTable
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.strategies.prefix_balance import OWN_SHARE, PER_REQUEST_BYTES, TURN_BYTES, PrefixBalance
from aibrix_operator.gateway.strategies.routings import Alone

MODEL = make_model(3)
SETTINGS = PrefixSettings(block_bytes=4)


@pytest.fixture
def table():
    return PrefixTable(SETTINGS)


@pytest.fixture
def balance(table):
    return PrefixBalance(table)


def give(balance, text, pod, **more):
    balance.admitted(make_ask(MODEL, request=make_request(text), **more), MODEL.endpoints[pod])


def picked(balance, text, **more):
    return set(drawn(balance, make_ask(MODEL, request=make_request(text), **more), 30))


def test_a_session_stays_at_its_cache(balance):
    give(balance, "a" * 400, 0)
    for pod in (1, 2):
        give(balance, "bc"[pod - 1] * 400, pod)
    assert picked(balance, "a" * 400 + "x" * 40) == {"p0"}


def test_a_new_session_goes_where_the_least_was_given(balance):
    for pod, size in ((0, 400), (1, 300), (2, 500)):
        give(balance, "abc"[pod] * size, pod)
    assert picked(balance, "z" * 400) == {"p1"}


def test_empty_prompts_are_spread_too(balance):
    for pod in (0, 2):
        give(balance, "", pod)
    assert picked(balance, "") == {"p1"}


@pytest.mark.parametrize(
    ("evenness", "excess", "pod"),
    [
        pytest.param(10, 100, "p0", id="given a little more"),
        pytest.param(10, 1500, "p1", id="given much more"),
        pytest.param(100, 100, "p1", id="given a little more, where evenness counts for more"),
        pytest.param(0, 100_000, "p0", id="evenness counts for nothing"),
    ],
)
def test_a_session_moves_when_its_engine_was_given_so_much_more_than_others(balance, evenness, excess, pod):
    """It costs 64 there, and 464 elsewhere."""
    knobs = Knobs(prefix_balance=PrefixBalanceKnobs(evenness=evenness))
    give(balance, "a" * 400, 0)
    give(balance, "b" * 2000, 0)
    give(balance, "c" * 2400, 1)
    give(balance, "d" * 9000, 2)
    give(balance, "e" * excess, 0)
    assert picked(balance, "a" * 400, knobs=knobs) == {pod}


def test_of_two_sessions_the_short_one_moves(balance):
    give(balance, "a" * 400, 0)
    give(balance, "b" * 2000, 0)
    give(balance, "c" * 1700, 1)
    give(balance, "d" * 9000, 2)
    assert picked(balance, "a" * 400) == {"p1"}
    assert picked(balance, "b" * 2000) == {"p0"}


def test_moves_go_by_the_share_of_the_work_and_not_by_its_bytes(balance):
    """What moves a session where little is done leaves it where ten times as much is."""
    for scale, moved in ((1, {"p1"}), (10, {"p0"})):
        now_s = NOW_S + 600 * scale
        give(balance, "a" * 400, 0, now_s=now_s)
        for pod, size in enumerate((3400, 3300, 9000)):
            give(balance, f"{scale}{pod}" * (size * scale // len(f"{scale}{pod}")), pod, now_s=now_s)
        assert picked(balance, "a" * 400, now_s=now_s) == moved, scale


def test_an_engine_of_any_work_has_a_finite_price(balance):
    knobs = Knobs(prefix_balance=PrefixBalanceKnobs(evenness=500))
    give(balance, "a" * 400_000, 0)
    assert all(math.isfinite(score) for score in balance.scores(make_ask(MODEL, knobs=knobs)))


def price(work, mean, cost):
    """The score of an engine by the rule as it is written down."""
    return cost * math.exp(PrefixBalanceKnobs().evenness * ((work + OWN_SHARE * cost) / mean - 1))


def test_only_what_was_not_in_the_cache_counts_as_work(balance):
    for _ in range(6):
        give(balance, "a" * 400, 0)
    for pod in (1, 2):
        give(balance, "bc"[pod - 1] * 800, pod)
    given = [400 + 6 * PER_REQUEST_BYTES, 800 + PER_REQUEST_BYTES, 800 + PER_REQUEST_BYTES]
    mean = (sum(given) + PER_REQUEST_BYTES) / 3
    scores = balance.scores(make_ask(MODEL))
    assert scores == pytest.approx([price(work, mean, PER_REQUEST_BYTES) for work in given])


@pytest.mark.parametrize(
    ("longer", "new_bytes"),
    [
        pytest.param(100, TURN_BYTES, id="much longer than what is hashed: a turn"),
        pytest.param(6, 6, id="hardly longer: what is longer"),
    ],
)
def test_behind_the_last_hashed_block_a_turns_worth_counts_for_who_has_all_before(balance, longer, new_bytes):
    """512 blocks of 4 bytes are hashed."""
    hashed = 512 * 4
    size = hashed + (9000 if longer == 100 else 0) + longer
    for pod in range(3):
        give(balance, "abc"[pod] * size, pod)
    given = size + PER_REQUEST_BYTES
    cheap, dear = new_bytes + PER_REQUEST_BYTES, size + PER_REQUEST_BYTES
    mean = (3 * given + cheap) / 3
    scores = balance.scores(make_ask(MODEL, request=make_request("a" * size)))
    assert scores == pytest.approx([price(given, mean, cheap), price(given, mean, dear), price(given, mean, dear)])


def test_work_fades(balance):
    give(balance, "a" * 400, 0)
    for fading_s in (PrefixBalanceKnobs().fading_s, 30.0):
        left = (400 + PER_REQUEST_BYTES) * math.exp(-20 / fading_s)
        knobs = Knobs(prefix_balance=PrefixBalanceKnobs(fading_s=fading_s))
        scores = balance.scores(make_ask(MODEL, now_s=NOW_S + 20, knobs=knobs))
        assert scores[0] == pytest.approx(price(left, (left + PER_REQUEST_BYTES) / 3, PER_REQUEST_BYTES))


def test_what_another_gateway_gave_counts(balance, table):
    blocks = hashes_of("a" * 400, root("m", SETTINGS), SETTINGS)
    for block in blocks:
        table.learn(block, "m", MODEL.endpoints[0].incarnation, int((NOW_S - 20) * NS), {})
    left = 400 * math.exp(-20 / PrefixBalanceKnobs().fading_s)
    scores = balance.scores(make_ask(MODEL))
    assert scores[0] == pytest.approx(price(left, (left + PER_REQUEST_BYTES) / 3, PER_REQUEST_BYTES))
    for block in blocks:
        table.learn(block, "m", MODEL.endpoints[0].incarnation, int(NOW_S * NS), {})
    assert balance.scores(make_ask(MODEL)) == scores


def test_scoring_remembers_nothing_and_an_engine_of_old_is_forgotten(balance, table):
    balance.scores(make_ask(MODEL, request=make_request("a" * 400)))
    assert len(table) == 0
    give(balance, "a" * 400, 0)
    give(balance, "b" * 400, 1, now_s=NOW_S + 601)
    scores = balance.scores(make_ask(MODEL, now_s=NOW_S + 601))
    assert scores[0] == scores[2] < scores[1]


def test_it_weighs_load_itself_so_nothing_is_blended_in():
    assert isinstance(StrategyBook().compile("prefix-balance", Knobs()), Alone)

"""prefix-balance: a prompt's cache is followed while that is cheaper than what its engine was given too much."""

from __future__ import annotations

import pytest
from strategy_builders import NOW_S, drawn, make_ask, make_model, make_request

from aibrix_operator.gateway.knobs import Knobs, PrefixBalanceKnobs
from aibrix_operator.gateway.prefix_blocks import PrefixSettings, hashes_of, root
from aibrix_operator.gateway.prefix_table import NS, PrefixTable
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.strategies.prefix_balance import PER_REQUEST_BYTES, TURN_BYTES, PrefixBalance
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
    ("cheap", "excess", "pod"),
    [
        pytest.param(4000, 450, "p0", id="cheap, given a little more"),
        pytest.param(4000, 600, "p1", id="cheap, given more than 500"),
        pytest.param(300, 600, "p0", id="dear by 100, given a little more"),
        pytest.param(300, 900, "p1", id="dear by 100, given more than 800"),
    ],
)
def test_a_session_moves_when_its_engine_was_given_more_than_the_move_weighs(balance, cheap, excess, pod):
    """Elsewhere its 400 bytes cost 400 more."""
    knobs = Knobs(prefix_balance=PrefixBalanceKnobs(move_weight=1.25, cheap_bytes=cheap))
    give(balance, "a" * 400, 0)
    give(balance, "b" * 400, 1)
    give(balance, "c" * 1024, 2)
    give(balance, "d" * int(excess - PER_REQUEST_BYTES), 0)
    assert picked(balance, "a" * 400, knobs=knobs) == {pod}


def test_only_what_was_not_in_the_cache_counts_as_work(balance):
    for _ in range(6):
        give(balance, "a" * 400, 0)
    work = balance.scores(make_ask(MODEL))[0] - balance.scores(make_ask(MODEL))[1]
    assert work == pytest.approx(400 + 6 * PER_REQUEST_BYTES)


def test_behind_the_last_hashed_block_a_turns_worth_counts_for_who_has_all_before(balance):
    """512 blocks of 4 bytes are hashed."""
    give(balance, "a" * 9000, 0)
    first, second, _ = balance.scores(make_ask(MODEL))
    assert first - second == pytest.approx(9000 + PER_REQUEST_BYTES)
    give(balance, "a" * 9100, 0)
    first, second, _ = balance.scores(make_ask(MODEL))
    assert first - second == pytest.approx(9000 + TURN_BYTES + 2 * PER_REQUEST_BYTES)
    give(balance, "a" * 2054, 0)
    first, second, _ = balance.scores(make_ask(MODEL))
    assert first - second == pytest.approx(9000 + TURN_BYTES + 6 + 3 * PER_REQUEST_BYTES)


def test_work_fades(balance):
    give(balance, "a" * 400, 0)
    scores = balance.scores(make_ask(MODEL, now_s=NOW_S + 20))
    assert scores[0] - scores[1] == pytest.approx((400 + PER_REQUEST_BYTES) / 2.718281828)
    later = make_ask(MODEL, now_s=NOW_S + 20, knobs=Knobs(prefix_balance=PrefixBalanceKnobs(fading_s=10)))
    scores = balance.scores(later)
    assert scores[0] - scores[1] == pytest.approx((400 + PER_REQUEST_BYTES) / 2.718281828**2)


def test_what_another_gateway_gave_counts(balance, table):
    blocks = hashes_of("a" * 400, root("m", SETTINGS), SETTINGS)
    for block in blocks:
        table.learn(block, "m", MODEL.endpoints[0].incarnation, int((NOW_S - 20) * NS), {})
    scores = balance.scores(make_ask(MODEL))
    assert scores[0] - scores[1] == pytest.approx(400 / 2.718281828)
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

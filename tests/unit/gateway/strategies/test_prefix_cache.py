"""prefix-cache: who serves a prompt that some engines have in their cache already."""

from __future__ import annotations

import pytest
from strategy_builders import drawn, make_ask, make_model, make_request, pod_of

from aibrix_operator.gateway.knobs import Knobs, PrefixCacheKnobs
from aibrix_operator.gateway.prefix_blocks import PrefixSettings
from aibrix_operator.gateway.prefix_figures import percent_bucket
from aibrix_operator.gateway.prefix_table import PrefixTable
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.strategies.least_request import LeastRequest
from aibrix_operator.gateway.strategies.least_request_top_k import LeastRequestTopK
from aibrix_operator.gateway.strategies.prefix_cache import PrefixCache

PROMPT = "0123456789ab"


@pytest.fixture
def table():
    return PrefixTable(PrefixSettings(block_bytes=4))


@pytest.fixture
def strategy(table):
    return PrefixCache(table)


def serve(strategy, model, place, text=PROMPT, **more):
    ask = make_ask(model, request=make_request(text), **more)
    strategy.admitted(ask, model.endpoints[place])
    return ask


@pytest.mark.acceptance("GW-54")
@pytest.mark.parametrize(
    ("prompt", "percent"), [(PROMPT, 100), ("0123456789XX", 66), (PROMPT + "cd", 100), ("01234", 100), ("X1234", 0)]
)
def test_percent_of_the_prompt_that_a_pod_has(strategy, prompt, percent):
    model = make_model(2)
    serve(strategy, model, 0)
    ask = make_ask(model, request=make_request(prompt))
    assert strategy.scores(ask) == [percent, 0]
    if percent:
        assert set(drawn(strategy, ask, 10)) == {"p0"}


@pytest.mark.acceptance("GW-55")
def test_the_same_blocks_in_another_order_are_another_prompt(strategy):
    model = make_model(2)
    serve(strategy, model, 0, "abcdefgh")
    serve(strategy, model, 1, "efgh")
    assert set(drawn(strategy, make_ask(model, request=make_request("efghabcd")), 10)) == {"p1"}


@pytest.mark.acceptance("GW-56")
@pytest.mark.parametrize(("factor", "pod", "fallback"), [(1, None, "overloaded"), (2, "p0", None)])
def test_a_pod_far_above_the_mean_is_skipped(strategy, factor, pod, fallback):
    model = make_model(3)
    serve(strategy, model, 0)
    knobs = Knobs(prefix_cache=PrefixCacheKnobs(standard_deviation_factor=factor))
    ask = make_ask(model, (9, 1, 1), request=make_request(PROMPT), knobs=knobs)
    assert set(drawn(strategy, ask, 40)) == ({pod} if pod else {"p1", "p2"})
    assert strategy.pick(ask).fallback == fallback


@pytest.mark.acceptance("GW-57")
@pytest.mark.parametrize(("counts", "pods"), [((12, 4, 4), {"p0"}), ((13, 0, 0), {"p1"})])
def test_far_out_of_balance_only_the_least_loaded_are_matched(table, strategy, counts, pods):
    """The gate before the strategies: 13 > 2 × (4.33 + 1)."""
    model = make_model(3)
    serve(strategy, model, 0)
    serve(strategy, model, 1, "0123")
    book = StrategyBook([strategy, LeastRequest(), LeastRequestTopK()])
    knobs = Knobs(prefix_cache=PrefixCacheKnobs(standard_deviation_factor=9))
    ask = make_ask(model, counts, request=make_request(PROMPT), knobs=knobs)
    assert set(drawn(book.compile("prefix-cache,least-request:0", knobs), ask, 40)) == pods


def test_equal_matches_go_to_the_one_with_fewer_requests(strategy):
    model = make_model(3)
    for place in (0, 1):
        serve(strategy, model, place)
    ask = make_ask(model, (3, 2, 0), request=make_request(PROMPT))
    assert set(drawn(strategy, ask, 20)) == {"p1"}


def test_without_a_match_the_least_loaded_serves(strategy):
    ask = make_ask(make_model(3), (3, 2, 0), request=make_request(PROMPT))
    assert (pod_of(strategy.pick(ask)), strategy.pick(ask).fallback) == ("p2", "no_match")


@pytest.mark.acceptance("GW-61")
def test_scoring_remembers_nothing_and_the_winner_is_remembered_once(table, strategy):
    model = make_model(3)
    book = StrategyBook([strategy, LeastRequest(), LeastRequestTopK()])
    for text in ("prefix-cache", "prefix-cache:2,least-request"):
        routing = book.compile(text, Knobs())
        ask = make_ask(model, request=make_request(PROMPT + text))
        known = len(table)
        for _ in range(3):
            routing.pick(ask)
        assert len(table) == known
        routing.admitted(ask, model.endpoints[2])
        assert len(table) > known
        assert strategy.scores(make_ask(model, request=make_request(PROMPT + text))) == [0, 0, 100]


@pytest.mark.acceptance("GW-52")
def test_a_lone_pod_is_remembered_so_that_a_second_one_starts_warm(strategy):
    book = StrategyBook([strategy, LeastRequest(), LeastRequestTopK()])
    routing = book.compile("prefix-cache", Knobs())
    lone = make_ask(make_model(1), request=make_request(PROMPT))
    routing.admitted(lone, routing.pick(lone).endpoint)
    assert strategy.scores(make_ask(make_model(2), request=make_request(PROMPT))) == [100, 0]


@pytest.mark.acceptance("GW-49")
def test_bare_prefix_cache_weighs_5_to_4_against_load(strategy):
    model = make_model(3)
    serve(strategy, model, 0)
    book = StrategyBook([strategy, LeastRequest(), LeastRequestTopK()])
    ask = make_ask(model, (6, 0, 0), request=make_request(PROMPT))
    assert set(drawn(book.compile("prefix-cache", Knobs()), ask, 50)) == {"p0"}
    assert set(drawn(book.compile("prefix-cache:1,least-request-top-k:2", Knobs()), ask, 50)) <= {"p0", "p1", "p2"}
    assert set(drawn(book.compile("prefix-cache:1,least-request:2", Knobs()), ask, 50)) == {"p1", "p2"}


def test_a_prompt_is_hashed_once_and_forgotten_when_placed(strategy):
    built = []

    def text():
        built.append(1)
        return PROMPT

    model = make_model(2)
    request = make_request()
    object.__setattr__(request, "text_of", text)
    ask = make_ask(model, request=request)
    strategy.pick(ask)
    strategy.pick(ask)
    strategy.admitted(ask, model.endpoints[0])
    assert built == [1]
    assert request.memo == {}


def test_how_much_of_a_prompt_the_chosen_engine_had_is_counted_once_it_is_sent_there(strategy, table):
    model = make_model(3)
    serve(strategy, model, 0)

    def send(text, place):
        ask = make_ask(model, request=make_request(text))
        strategy.pick(ask)
        strategy.admitted(ask, model.endpoints[place])

    send(PROMPT, 0)
    send("0123456789XX", 0)
    send(PROMPT, 2)
    send("another text", 1)
    figures = table.figures
    name = model.name
    assert figures.decisions == {(name, "76-100"): 1, (name, "51-75"): 1, (name, "0"): 2}
    assert dict(figures.selections) == {"prefix_match": 2, "prefix_match_skipped": 1, "least_request_fallback": 1}


def test_requests_that_the_gate_kept_from_their_cache_are_counted(table):
    book = StrategyBook(prefixes=table)
    model = make_model(2)
    routing = book.compile("prefix-cache", Knobs())
    first = make_ask(model, request=make_request(PROMPT))
    routing.admitted(first, routing.pick(first).endpoint)
    for _ in range(20):
        first.loads.add(model.endpoints[0])
    ask = make_ask(model, request=make_request(PROMPT), loads=first.loads)
    routing.admitted(ask, routing.pick(ask).endpoint)
    assert table.figures.imbalances == 1


@pytest.mark.parametrize(
    ("percent", "bucket"),
    [(0, "0"), (1, "1-25"), (25, "1-25"), (26, "26-50"), (50, "26-50"), (75, "51-75"), (76, "76-100"), (100, "76-100")],
)
def test_buckets_of_percents_are_upstreams(percent, bucket):
    assert percent_bucket(percent) == bucket

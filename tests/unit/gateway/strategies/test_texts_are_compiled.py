"""Strategy texts: which are understood, what is blended in, and what is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from strategy_builders import drawn, load, make_ask, make_endpoint, make_model

from aibrix_operator.gateway.knobs import AutoBlendKnobs, Knobs
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.strategies import book as books
from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Pick
from aibrix_operator.gateway.strategies.book import StrategyBook, StrategyError
from aibrix_operator.gateway.strategies.least_request import LeastRequest
from aibrix_operator.gateway.strategies.random_choice import RandomChoice
from aibrix_operator.gateway.strategies.routings import Alone, Blend
from aibrix_operator.gateway.view import Model


class Fixed(choosing.Stateless):
    """A scorer with given figures, which writes down what it is told."""

    def __init__(self, name, scores=(), *, lower_is_better=True):
        self.name = name
        self.lower_is_better = lower_is_better
        self.given = list(scores)
        self.told = []

    def pick(self, ask):
        return choosing.lowest(ask, self.given)

    def scores(self, ask):
        return self.given

    def admitted(self, ask, endpoint):
        self.told.append(("admitted", endpoint.pod))

    def ended(self, request, endpoint, usage):
        self.told.append(("ended", endpoint.pod))


class Broken(Fixed):
    def scores(self, ask):
        raise RuntimeError("no figures today")

    pick = scores


def make_book(*scorers):
    return StrategyBook([RandomChoice(), LeastRequest(), *scorers])


@pytest.fixture
def book():
    return make_book(*(Fixed(name) for name in ("a", "b", "prefix-cache", "session-affinity", "least-request-top-k")))


@pytest.mark.acceptance("GW-28")
@pytest.mark.acceptance("GW-33")
@pytest.mark.parametrize(
    "text",
    [
        "no-such", "", " ", ",", "a,", "a:", "a:-1", "a:1.5", "a:x", "a:0", "a:0,b:0", "a:1000001", "a:²", "a:1:2",
        "least-request:2,random", "least-request:0", "least-request:1.5", "pd", "slo", "slo-pack-load", "external",
        "power-of-two", "pd,least-request", "Random", "a:" + "9" * 5000,
    ],
)  # fmt: skip
def test_a_text_that_names_no_strategy_is_refused_in_the_words_the_client_gets(book, text):
    with pytest.raises(StrategyError) as refused:
        book.compile(text, Knobs())
    assert str(refused.value) == f"incorrect routing strategy {text}"


@pytest.mark.acceptance("GW-49")
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("a", {"a": 1, "least-request-top-k": 1}, id="bare"),
        pytest.param("a:7", {"a": 7, "least-request-top-k": 1}, id="bare with a weight"),
        pytest.param(" a : 2 , b ", {"a": 2, "b": 1, "least-request-top-k": 1}, id="two, with blanks"),
        pytest.param("a,b,a:3", {"a": 4, "b": 1, "least-request-top-k": 1}, id="named twice"),
        pytest.param("prefix-cache", {"prefix-cache": 5, "least-request-top-k": 4}, id="bare prefix-cache is 5:4"),
        pytest.param(
            "prefix-cache,a", {"prefix-cache": 1, "a": 1, "least-request-top-k": 1}, id="prefix-cache and one"
        ),
        pytest.param("a,least-request:3", {"a": 1, "least-request": 3}, id="names a load scorer"),
        pytest.param("a,b,least-request:0", {"a": 1, "b": 1}, id="opts out"),
        pytest.param("a,session-affinity", {"a": 1, "session-affinity": 1, "least-request-top-k": 1}, id="sessions"),
    ],
)
def test_a_load_scorer_is_blended_behind_what_was_asked(book, text, parts):
    routing = book.compile(text, Knobs())
    assert isinstance(routing, Blend)
    assert {part.scorer.name: part.weight for part in routing.parts} == parts
    assert routing.text == text


@pytest.mark.acceptance("GW-49")
@pytest.mark.parametrize(
    "text", ["random", "least-request", "session-affinity", "least-request-top-k", "prefix-cache:1,least-request:0"]
)
def test_what_is_not_blended_follows_its_own_rule(book, text):
    routing = book.compile(text, Knobs())
    assert isinstance(routing, Alone)
    assert routing.text == text


def test_the_blend_is_what_the_knobs_say(book):
    def parts(text, **changes):
        routing = book.compile(text, Knobs(auto_blend=AutoBlendKnobs(**changes)))
        return {p.scorer.name: p.weight for p in routing.parts} if isinstance(routing, Blend) else routing.strategy.name

    assert parts("a", load_balance_weight=0) == "a"
    assert parts("prefix-cache", load_balance_weight=0) == "prefix-cache"
    assert parts("a", load_scorer="least-request") == {"a": 1, "least-request": 1}
    assert parts("prefix-cache", prefix_cache_weight=2, prefix_cache_load_balance_weight=1) == {
        "prefix-cache": 2,
        "least-request-top-k": 1,
    }


def test_a_text_is_compiled_once_and_the_oldest_of_too_many_is_dropped(book, monkeypatch):
    monkeypatch.setattr(books, "MOST_COMPILED", 3)
    first = book.compile("a:1", Knobs())
    assert book.compile("a:1", Knobs()) is first
    for weight in range(2, 5):
        book.compile(f"a:{weight}", Knobs())
    assert book.compile("a:1", Knobs()) is not first
    long = "a," * 500 + "a"
    assert book.compile(long, Knobs()) is not book.compile(long, Knobs())


@pytest.mark.acceptance("GW-48")
def test_equal_sums_go_to_either_since_the_order_of_candidates_means_nothing():
    book = make_book(Fixed("x", (0, 10)), Fixed("y", (0.9, 0.1)))
    counts = drawn(book.compile("x:1,y:1,least-request:0", Knobs()), make_ask(make_model(2)), 400)
    assert 140 < counts["p0"] < 260


@pytest.mark.acceptance("GW-48")
@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        pytest.param((None, 10, 20), [0.0, 1.0, 0.0], id="unscored is 0"),
        pytest.param((5, 5, 5), [1.0, 1.0, 1.0], id="all equal is 1"),
        pytest.param((float("inf"), 1, 3), [0.0, 1.0, 0.0], id="infinite is 0"),
        pytest.param((float("nan"), float("-inf"), 3), [0.0, 0.0, 1.0], id="nan is 0"),
        pytest.param((None, None, None), [0.0, 0.0, 0.0], id="nothing known"),
        pytest.param((0, 5, 10), [1.0, 0.5, 0.0], id="between"),
    ],
)
def test_scores_become_shares(scores, expected):
    from aibrix_operator.gateway.strategies.routings import shares_of

    assert shares_of(scores, lower_is_better=True) == expected


def test_higher_scores_win_where_higher_is_better():
    book = make_book(Fixed("x", (10, 60, 20), lower_is_better=False))
    assert set(drawn(book.compile("x,least-request:0", Knobs()), make_ask(make_model(3)), 20)) == {"p0"}
    assert set(drawn(book.compile("x,least-request:1", Knobs()), make_ask(make_model(3)), 20)) == {"p1"}


def test_a_scorer_that_raises_removes_only_its_part_and_is_counted():
    book = make_book(Broken("bad"), Fixed("x", (3, 1, 2)))
    pick = book.compile("bad:9,x,least-request:0", Knobs()).pick(make_ask(make_model(3)))
    assert (pick.endpoint.pod, pick.fallback) == ("p1", "error")
    pick = book.compile("bad,least-request:0", Knobs()).pick(make_ask(make_model(3)))
    assert pick.fallback == "error"


def test_a_scorer_without_a_single_figure_leaves_the_choice_to_the_others_and_is_counted():
    book = make_book(Fixed("x", (None, None, None)))
    ask = make_ask(make_model(3), (2, 0, 2))
    pick = book.compile("x,least-request:1", Knobs()).pick(ask)
    assert (pick.endpoint.pod, pick.fallback) == ("p1", "no_scores")


@pytest.mark.acceptance("GW-61")
def test_every_part_is_told_once_and_in_order_where_the_request_went():
    a, b = Fixed("x", (1, 2)), Fixed("y", (1, 2))
    routing = make_book(a, b).compile("x,y,least-request:0", Knobs())
    ask = make_ask(make_model(2))
    routing.pick(ask)
    assert a.told == b.told == []
    routing.admitted(ask, ask.candidates[1])
    routing.ended(ask.request, ask.candidates[1], None)
    assert a.told == b.told == [("admitted", "p1"), ("ended", "p1")]


@pytest.mark.acceptance("GW-52")
def test_a_single_candidate_needs_no_strategy():
    book = make_book(Broken("bad"))
    for text in ("bad,least-request:0", "bad", "random"):
        assert book.compile(text, Knobs()).pick(make_ask(make_model(1))) == Pick(ANY_ENDPOINT)


class _Any:
    def __eq__(self, other):
        return True

    __hash__ = object.__hash__


ANY_ENDPOINT = _Any()


@pytest.mark.acceptance("GW-43")
@pytest.mark.parametrize(
    ("counts", "is_gated"),
    [
        pytest.param((0, 8), True, id="two, gap 8"),
        pytest.param((0, 7), False, id="two, gap 7"),
        pytest.param((0, 0, 8), True, id="three, 8 > 7.33"),
        pytest.param((4, 4, 12), False, id="three, 12 < 15.33"),
    ],
)
@pytest.mark.parametrize("is_filtered", [False, True], ids=["all", "filtered"])
def test_far_out_of_balance_only_the_least_loaded_are_candidates(counts, is_gated, is_filtered):
    model = make_model(len(counts))
    ask = make_ask(model, counts)
    if is_filtered:
        wider = Model("m", (*model.endpoints, make_endpoint("p9")))
        ask = replace(ask, model=wider)
    for text in ("random", "x:1,least-request:0", "x,b"):
        book = make_book(Fixed("x", [1] * len(counts)), Fixed("b", [1] * len(counts)))
        picked = set(drawn(book.compile(text, Knobs()), ask, 200))
        low = {e.pod for e, count in zip(model.endpoints, counts, strict=True) if count == min(counts)}
        assert picked == (low if is_gated else {e.pod for e in model.endpoints})


def test_sessions_stick_through_the_gate():
    book = make_book(Fixed("session-affinity", (9, 1)))
    ask = make_ask(make_model(2), (0, 50))
    assert set(drawn(book.compile("session-affinity", Knobs()), ask, 20)) == {"p1"}


@pytest.mark.acceptance("GW-37")
def test_least_request_draws_among_the_least_loaded():
    ask = make_ask(make_model(3), (3, 1, 1))
    counts = drawn(StrategyBook([LeastRequest()]).compile("least-request", Knobs()), ask, 300)
    assert set(counts) == {"p1", "p2"}
    assert all(110 <= count <= 190 for count in counts.values())


@pytest.mark.acceptance("GW-37")
def test_least_request_counts_an_unknown_pod_as_idle_and_minds_filters_and_peers():
    model = make_model(3)
    loads = load(Loads(), model, (0, 2, 1))
    ask = make_ask(model, loads=loads)
    assert set(drawn(LeastRequest(), ask, 20)) == {"p0"}
    assert set(drawn(LeastRequest(), replace(ask, candidates=model.endpoints[1:]), 20)) == {"p2"}
    loads.set_peers({model.endpoints[0].key: 5})
    assert set(drawn(LeastRequest(), ask, 20)) == {"p2"}


@pytest.mark.acceptance("GW-53")
def test_each_port_of_a_data_parallel_pod_is_weighed_on_its_own():
    ports = tuple(make_endpoint("p0", port=8000 + rank) for rank in range(4))
    mixed = Model("m", (*ports, make_endpoint("p1")))
    ask = make_ask(mixed, (3, 0, 2, 2, 1))
    assert {LeastRequest().pick(ask).endpoint.address for _ in range(20)} == {"10.0.0.1:8001"}


@pytest.mark.acceptance("GW-53")
def test_blends_weigh_the_ports_of_a_pod_by_their_requests():
    ports = tuple(make_endpoint("p0", port=8000 + rank) for rank in range(4))
    model = Model("m", ports)
    book = make_book(Fixed("x", (1, 1, 1, 1)), Fixed("least-request-top-k", (1, 1, 1, 1)))
    ask = make_ask(model, (3, 0, 2, 2))
    assert {book.compile("x", Knobs()).pick(ask).endpoint.address for _ in range(20)} == {"10.0.0.1:8001"}


def test_custom_strategies_come_by_entry_point(monkeypatch):
    class Point:
        name = value = "mine"

        def __init__(self, made):
            self._made = made

        def load(self):
            return self._made

    def installed(made):
        monkeypatch.setattr(books, "entry_points", lambda group: [Point(made)] if group == books.GROUP else [])

    installed(lambda: Fixed("mine", (2, 1)))
    assert "mine" in StrategyBook().names()
    installed(lambda: object())
    with pytest.raises(StrategyError, match=r"mine .* lacks"):
        StrategyBook()
    installed(lambda: 1 / 0)
    with pytest.raises(StrategyError, match=r"mine .* does not load: division by zero"):
        StrategyBook()
    installed(lambda: Fixed("random"))
    with pytest.raises(StrategyError, match="two routing strategies named random"):
        StrategyBook()

"""The board of loads says at every moment what counting everything anew would say."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.gateway.loads import Board, Loads
from aibrix_operator.gateway.view import Endpoint, Model


def endpoints(count, model="m"):
    return tuple(Endpoint(model, "ns", f"p{i}", f"u{i}", f"10.0.0.{i}:8000") for i in range(count))


def naive(board, counts):
    values = list(counts.values())
    assert (board.least, board.most, board.total) == (min(values), max(values), sum(values))
    assert {e for e, c in counts.items() if c == min(values)} == set(board.least_loaded())
    assert len(board.least_loaded()) == len(set(board.least_loaded()))
    assert all(board.count(e) == c for e, c in counts.items())
    for most in (0, 1, 2, len(counts), len(counts) + 1):
        best = board.best(most)
        assert [counts[e] for e in best] == sorted(values)[:most]
        assert len(set(best)) == len(best)


@given(
    start=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    moves=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=40),
)
def test_a_board_agrees_with_counting_anew(start, moves):
    counts = dict(zip(endpoints(len(start)), start, strict=True))
    board = Board(dict(counts))
    naive(board, counts)
    for place, count in moves:
        endpoint = list(counts)[place % len(counts)]
        counts[endpoint] = count
        board.change(endpoint, count)
        naive(board, counts)


@given(moves=st.lists(st.tuples(st.sampled_from("arp"), st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_loads_follow_requests_peers_and_new_models(moves):
    """``a``dd, ``r``emove what was added, ``p``eers; two models share one of their Pods' ports."""
    shared = endpoints(4)
    loads = Loads()
    running: Counter[str] = Counter()
    peers: dict[str, int] = {}
    for step, (move, place, amount) in enumerate(moves):
        endpoint = shared[place]
        if move == "a":
            loads.add(endpoint)
            running[endpoint.key] += 1
        elif move == "r" and running[endpoint.key]:
            loads.remove(endpoint)
            running[endpoint.key] -= 1
        elif move == "p":
            peers = {**peers, endpoint.key: amount}
            loads.set_peers(dict(peers))
        expected = {e: running[e.key] + peers.get(e.key, 0) for e in shared}
        assert {e: loads.count(e) for e in shared} == expected
        models = [Model("m", shared[: 2 + step % 3]), Model("n", shared[1:])]
        for model in (*models, *models):
            naive(loads.board(model), {e: expected[e] for e in model.endpoints})
    loads.drop("m")
    loads.drop("n")
    loads.add(shared[0])
    assert loads.own() == {key: count for key, count in (running + Counter({shared[0].key: 1})).items() if count > 0}


def test_equals_are_drawn_alike():
    first, second, third = endpoints(3)
    board = Board({first: 1, second: 0, third: 0})
    random = Random(1)
    drawn = Counter(board.draw_least(random).pod for _ in range(1000))
    assert set(drawn) == {"p1", "p2"}
    assert abs(drawn["p1"] - 500) < 70

"""least-request-top-k: who is eligible, how fresh Pods are held back, and what that does for several gateways."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from strategy_builders import NOW_S, drawn, load, make_ask, make_model

from aibrix_operator.gateway.knobs import Knobs, TopKKnobs
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.strategies.least_request import LeastRequest
from aibrix_operator.gateway.strategies.least_request_top_k import LeastRequestTopK, counts_with_ramp


@pytest.mark.acceptance("GW-38")
@pytest.mark.parametrize(("epsilon", "eligible"), [(4, 5), (2, 3)])
def test_picks_are_uniform_over_the_eligible(epsilon, eligible):
    ask = make_ask(make_model(7), (0, 1, 2, 3, 4, 5, 9), knobs=Knobs(top_k=TopKKnobs(epsilon=epsilon)))
    picked = drawn(LeastRequestTopK(), ask, 10_000)
    assert set(picked) == {f"p{i}" for i in range(eligible)}
    assert all(abs(count / 10_000 - 1 / eligible) < 0.02 for count in picked.values())


def test_of_many_equals_any_five_are_eligible():
    picked = drawn(LeastRequestTopK(), make_ask(make_model(20), [1] * 20), 4000)
    assert len(picked) == 20
    assert all(100 < count < 300 for count in picked.values())


@pytest.mark.acceptance("GW-39")
@pytest.mark.parametrize(("age_s", "effective"), [(0, 10), (150, 5), (300, 0)])
def test_a_fresh_pod_counts_as_if_it_had_part_of_a_warm_ones_load(age_s, effective):
    ask = make_ask(make_model(3, ready_s=(0, 0, NOW_S - age_s)), (10, 12, 0))
    assert counts_with_ramp(ask) == [10, 12, effective]


@pytest.mark.acceptance("GW-39")
def test_where_all_are_fresh_nobody_is_held_back():
    assert counts_with_ramp(make_ask(make_model(2, ready_s=(NOW_S, NOW_S - 9)), (1, 0))) == [1, 0]


def test_a_window_of_0_turns_the_ramp_off():
    ask = make_ask(make_model(2, ready_s=(0, NOW_S)), (9, 0), knobs=Knobs(top_k=TopKKnobs(ramp_window_s=0)))
    assert counts_with_ramp(ask) == [9, 0]


def test_as_a_scorer_only_the_eligible_have_figures():
    ask = make_ask(make_model(3), (0, 4, 5))
    for _ in range(50):
        first, second, third = LeastRequestTopK().scores(ask)
        assert -4 < first <= 0 < second <= 4
        assert third is None


@pytest.mark.acceptance("GW-40")
@pytest.mark.parametrize(("strategy", "is_flooded"), [(LeastRequestTopK(), False), (LeastRequest(), True)])
def test_two_gateways_do_not_flood_a_fresh_pod(strategy, is_flooded):
    """A burst of 200 requests, of which neither gateway sees the other's."""
    model = make_model(8, ready_s=(0, 0, 0, 0, 0, 0, 0, NOW_S))
    random = Random(3)
    received: Counter[str] = Counter()
    for _ in range(2):
        loads = load(Loads(), model, (40, 40, 40, 40, 40, 40, 40, 0))
        for _ in range(100):
            endpoint = strategy.pick(make_ask(model, loads=loads, seed=random)).endpoint
            loads.add(endpoint)
            received[endpoint.pod] += 1
    assert (received["p7"] > 2 * 200 / 8) is is_flooded

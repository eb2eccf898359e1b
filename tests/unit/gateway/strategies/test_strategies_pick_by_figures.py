"""What engines say of themselves, and which Pod each strategy takes for it."""

from __future__ import annotations

import pytest
from strategy_builders import NOW_S, drawn, make_ask, make_model, metrics_of, pod_of

from aibrix_operator.gateway.knobs import Knobs, LoadBalanceKnobs
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.strategies.least_busy_time import LeastBusyTime
from aibrix_operator.gateway.strategies.least_gpu_cache import LeastGpuCache
from aibrix_operator.gateway.strategies.least_kv_cache import LeastKvCache
from aibrix_operator.gateway.strategies.least_latency import LeastLatency
from aibrix_operator.gateway.strategies.least_utilization import LeastUtilization
from aibrix_operator.gateway.strategies.load_balance import LoadBalance
from aibrix_operator.gateway.strategies.throughput import Throughput

INF = float("inf")


def averages(prompt, generated):
    return {"prompt_tokens_mean": prompt, "generated_tokens_mean": generated}


@pytest.mark.acceptance("GW-45")
def test_throughput_takes_the_engine_with_the_smallest_requests():
    model = make_model(2)
    ask = make_ask(model, metrics=metrics_of(model, averages(10, 100), averages(60, 10)))
    assert Throughput().scores(ask) == [120, 130]
    assert pod_of(Throughput().pick(ask)) == "p0"


@pytest.mark.acceptance("GW-46")
def test_least_kv_cache_leaves_out_an_engine_that_says_only_one_of_its_caches():
    model = make_model(3)
    full = {"kv_cache_usage": 0.9, "cpu_cache_usage": 0.1}
    said = metrics_of(model, full, {"kv_cache_usage": 0.1}, {"kv_cache_usage": 0.5, "cpu_cache_usage": 0.2})
    ask = make_ask(model, metrics=said)
    assert LeastKvCache().scores(ask) == [1.0, None, 0.7]
    assert pod_of(LeastKvCache().pick(ask)) == "p2"


@pytest.mark.acceptance("GW-46")
@pytest.mark.parametrize(
    "strategy", [LeastKvCache(), LeastGpuCache(), LeastBusyTime(), LeastUtilization(), LeastLatency(), Throughput()]
)
def test_without_any_figure_the_choice_is_random_and_counted(strategy):
    model = make_model(3)
    ask = make_ask(model, metrics=metrics_of(model, {}, None, {"running": 1.0}))
    assert {strategy.pick(ask).fallback for _ in range(5)} == {"no_metrics"}
    assert set(drawn(strategy, ask, 60)) == {"p0", "p1", "p2"}
    routing = StrategyBook().compile(f"{strategy.name}:1", Knobs())
    assert routing.pick(ask).fallback == "no_scores"


@pytest.mark.parametrize(
    ("strategy", "figure"),
    [
        (LeastGpuCache(), "kv_cache_usage"),
        (LeastBusyTime(), "gpu_busy_ratio"),
        (LeastUtilization(), "utilization"),
    ],
)
def test_the_lowest_figure_wins_and_equals_share(strategy, figure):
    model = make_model(4)
    ask = make_ask(model, metrics=metrics_of(model, {figure: 0.5}, {figure: 0.2}, None, {figure: 0.2}))
    picked = drawn(strategy, ask, 200)
    assert set(picked) == {"p1", "p3"}
    assert min(picked.values()) > 60
    assert strategy.pick(ask).fallback is None


def slow(queue, prefill, decode, **more):
    return {"queue_mean_s": queue, "prefill_mean_s": prefill, "decode_mean_s": decode, **more}


@pytest.mark.acceptance("GW-44")
def test_least_latency_scales_times_to_one_request_that_is_equal_for_all():
    model = make_model(1)
    ask = make_ask(model, metrics=metrics_of(model, slow(0.1, 0.2, 1.0, **averages(100, 50))))
    assert LeastLatency().scores(ask) == [pytest.approx(1.3)]
    model = make_model(2)
    said = metrics_of(model, slow(0.1, 0.2, 1.0, **averages(100, 50)), slow(0.0, 0.2, 1.0, **averages(300, 150)))
    assert LeastLatency().scores(make_ask(model, metrics=said)) == [
        pytest.approx(0.1 + 0.2 / 100 * 200 + 1.0 / 50 * 100),
        pytest.approx(0.2 / 300 * 200 + 1.0 / 150 * 100),
    ]


@pytest.mark.acceptance("GW-44")
def test_least_latency_takes_10_and_100_tokens_where_no_engine_has_served_any():
    model = make_model(2)
    said = metrics_of(model, slow(0.1, 0.2, 1.0, **averages(0, 0)), slow(0.0, 0.2, 1.0))
    assert LeastLatency().scores(make_ask(model, metrics=said)) == [pytest.approx(1.3), pytest.approx(1.2)]
    half = metrics_of(model, slow(0.0, 0.1, 0.0, prompt_tokens_mean=20), slow(0.0, 0.1, 0.0))
    assert LeastLatency().scores(make_ask(model, metrics=half)) == [pytest.approx(0.1), pytest.approx(0.1)]


def balance(rate=None, free=None, **more):
    said = {} if rate is None else {"output_tokens_per_s": rate}
    return said | ({} if free is None else {"kv_cache_usage": 1 - free}) | more


@pytest.mark.acceptance("GW-41")
def test_load_balance_weighs_waiting_against_free_cache():
    model = make_model(3)
    said = metrics_of(model, balance(6000, 0.5), balance(4000, 0.3), balance(3000, 0.6))
    ask = make_ask(model, (30, 20, 25), metrics=said)
    assert LoadBalance().scores(ask) == [pytest.approx(s, abs=5e-5) for s in (0.0075, 0.0099, 0.0110)]
    assert pod_of(LoadBalance().pick(ask)) == "p0"


@pytest.mark.acceptance("GW-41")
def test_below_the_critical_share_of_free_cache_an_engine_is_the_last_resort():
    model = make_model(3)
    said = metrics_of(model, balance(100, 0.10), balance(100, 0.0999), balance(100, -3.0))
    ask = make_ask(model, (9, 0, 0), metrics=said)
    assert LoadBalance().scores(ask)[1:] == [INF, INF]
    assert LoadBalance().scores(ask)[0] < INF
    assert pod_of(LoadBalance().pick(ask)) == "p0"


@pytest.mark.acceptance("GW-41")
def test_when_all_caches_are_critical_the_emptiest_is_taken():
    model = make_model(3)
    said = metrics_of(model, balance(100, 0.05), balance(100, 0.01), balance(100, 0.05, cpu_cache_usage=0.5))
    assert set(drawn(LoadBalance(), make_ask(model, (5, 0, 0), metrics=said), 20)) == {"p0"}


@pytest.mark.acceptance("GW-42")
def test_an_engine_without_a_rate_is_taken_for_an_average_one():
    model = make_model(3)
    knobs = Knobs(load_balance=LoadBalanceKnobs(kv_pressure_alpha=0))
    ask = make_ask(model, (10, 10, 10), metrics=metrics_of(model, balance(100), None, balance(300)), knobs=knobs)
    assert LoadBalance().scores(ask) == [pytest.approx(0.1), pytest.approx(0.05), pytest.approx(1 / 30)]
    ask = make_ask(model, (10, 4, 10), metrics=metrics_of(model, None, {}, balance(0)), knobs=knobs)
    assert LoadBalance().scores(ask) == [10.0, 4.0, 10.0]


def test_load_balance_counts_what_engines_queue_as_the_knob_says():
    model = make_model(1)
    knobs = Knobs(load_balance=LoadBalanceKnobs(queued_weight=0.5))
    ask = make_ask(model, (10,), metrics=metrics_of(model, balance(100, 1.0, waiting=8.0)), knobs=knobs)
    assert LoadBalance().scores(ask) == [pytest.approx(0.14)]


def test_load_balance_sends_equal_loads_to_the_emptiest_cache():
    model = make_model(3)
    said = metrics_of(model, balance(100, 0.4), balance(100, 0.8), balance(100, 0.4))
    assert set(drawn(LoadBalance(), make_ask(model, metrics=said), 20)) == {"p1"}


def test_figures_belong_to_an_address():
    model = make_model(2)
    said = metrics_of(model, {"utilization": 0.9}, {"utilization": 0.1})
    del said[model.endpoints[1].address]
    assert LeastUtilization().scores(make_ask(model, metrics=said, now_s=NOW_S)) == [0.9, None]

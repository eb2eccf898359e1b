"""``leastLatency`` and ``leastThroughput``: Pods are compared by what their engines' metrics tell."""

import asyncio
from itertools import pairwise

import pytest
from adapter_cluster import AdapterCluster
from adapter_play import Play

from aibrix_operator.api import names
from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.modeladapter import work
from aibrix_operator.modeladapter.work import Work, WorkTold, added, read_page
from aibrix_operator.sim import loop
from aibrix_operator.sim.engine.metrics import Gauges, Metrics

THREE = ("b-1", "b-2", "b-3")
IDLE = Work(0.0, 0.0, 0.0, 0.0, 0.0)


def told(*, at_s=10.0, **figures):
    """An engine that did this since a first reading of an idle one."""
    return WorkTold(
        IDLE, Work(at_s, **{"requests": 0, "busy_s": 0, "prompt_tokens": 0, "generated_tokens": 0} | figures)
    )


def played(policy, works, **options):
    play = Play(tuple(works), replicas=1, policy=policy, **options)
    for name, each in works.items():
        play.change_pod(name, work=each)
    return play


# --- the figures


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(WorkTold(Work(0, 4, 40.0), Work(10, 6, 43.0)), 1.5, id="of those that ended in the window"),
        pytest.param(WorkTold(Work(0, 4, 40.0), Work(10, 4, 40.0)), 10.0, id="of all when none ended in the window"),
        pytest.param(WorkTold(IDLE, IDLE), 0.0, id="nothing waits where nobody asked"),
        pytest.param(WorkTold(Work(0, 4, None), Work(10, 6, None)), None, id="no times on the page"),
        pytest.param(WorkTold(error="cannot be reached"), None, id="no page"),
    ],
)
def test_the_latency_of_an_engine(given, expected):
    assert work.latency_s(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(told(prompt_tokens=100, generated_tokens=30), 1380.0, id="prompts count twice"),
        pytest.param(told(prompt_tokens=100, at_s=60.0), 200.0, id="of a minute"),
        pytest.param(told(prompt_tokens=100, at_s=4.0), None, id="readings too near each other"),
        pytest.param(WorkTold(IDLE, IDLE), None, id="one reading"),
        pytest.param(told(generated_tokens=None), None, id="no count on the page"),
        pytest.param(WorkTold(error="cannot be reached"), None, id="no page"),
    ],
)
def test_the_throughput_of_an_engine(given, expected):
    assert work.weighted_tokens_per_minute(given) == expected


def test_readings_older_than_the_window_are_let_go_and_two_are_always_kept():
    readings = []
    for at_s in range(0, 130, 10):
        found = added(readings, Work(float(at_s), float(at_s)))
    assert (found.oldest.read_at_s, found.newest.read_at_s) == (60.0, 120.0)
    found = added(readings, Work(500.0, 500.0))
    assert (found.oldest.read_at_s, found.newest.read_at_s) == (120.0, 500.0)
    assert all(a.read_at_s < b.read_at_s for a, b in pairwise(readings))


def test_a_restarted_engine_begins_a_new_window():
    readings = []
    added(readings, Work(0.0, 9.0, 90.0, 900.0, 900.0))
    found = added(readings, Work(10.0, 0.0, 0.0, 0.0, 0.0))
    assert found.oldest is found.newest
    assert (work.latency_s(found), work.weighted_tokens_per_minute(found)) == (0.0, None)


def test_what_was_told_before_an_error_counts_again_after_it():
    readings = []
    added(readings, Work(0.0, 1.0, 1.0, 0.0, 0.0))
    assert added(readings, "connection refused") == WorkTold(error="connection refused")
    assert work.weighted_tokens_per_minute(added(readings, Work(20.0, 1.0, 1.0, 10.0, 0.0))) == 60.0


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_the_pages_of_both_engines_are_understood(kind):
    metrics = Metrics("base", 4096, 1)
    metrics.counters.update(prompt_tokens=70, generation_tokens=30)
    for name, seconds in (("request_queue_time", 1.0), ("request_inference_time", 3.0), ("e2e_request_latency", 4.0)):
        metrics.histograms[f"{name}_seconds"].observe(seconds, 2)
    gauges = Gauges(0, 0, 0.0, 0, "", "", 0, 0)
    page = metrics.vllm_page(gauges) if kind == "vllm" else metrics.sglang_page(gauges)
    assert read_page(page, 5.0) == Work(5.0, 2.0, 8.0, 70.0, 30.0)


def test_a_page_with_ranks_stamps_and_nonsense():
    page = (
        'vllm:prompt_tokens_total{engine="0",model_name="a } b"} 3.0 1700000000000\n'
        'vllm:prompt_tokens_total{engine="1"} 4\nvllm:generation_tokens_total NaN\n'
        "vllm:request_inference_time_seconds_count x\nvllm:request_inference_time_seconds_sum\n"
    )
    assert read_page(page, 0.0) == Work(0.0, prompt_tokens=7.0)
    assert read_page("", 0.0) == Work(0.0)


# --- the choice


@pytest.mark.parametrize(
    ("policy", "best"),
    [(Policy.LEAST_LATENCY, "b-2"), (Policy.LEAST_THROUGHPUT, "b-3"), (Policy.LEAST_ADAPTERS, "b-1")],
)
def test_the_least_is_chosen(policy, best):
    works = {
        "b-1": told(requests=2, busy_s=8.0, prompt_tokens=60, generated_tokens=60),
        "b-2": told(requests=2, busy_s=2.0, prompt_tokens=90, generated_tokens=10),
        "b-3": told(requests=2, busy_s=4.0, prompt_tokens=10, generated_tokens=90),
    }
    assert played(policy, works).start().status.instances == (best,)


@pytest.mark.parametrize("policy", [Policy.LEAST_LATENCY, Policy.LEAST_THROUGHPUT])
def test_of_equal_engines_the_one_with_the_fewest_models_is_chosen(policy):
    play = played(policy, {name: told() for name in THREE})
    play.change_pod("b-1", other_adapters=2)
    play.change_pod("b-2", other_adapters=1)
    assert play.start().status.instances == ("b-3",)


@pytest.mark.parametrize("policy", [Policy.LEAST_LATENCY, Policy.LEAST_THROUGHPUT])
def test_an_engine_that_tells_no_figure_is_passed_over(policy):
    works = {"b-1": WorkTold(error="cannot be reached"), "b-2": WorkTold(Work(0.0), Work(10.0)), "b-3": told()}
    assert played(policy, works).start().status.instances == ("b-3",)


@pytest.mark.parametrize(
    ("policy", "words"), [(Policy.LEAST_LATENCY, "request times"), (Policy.LEAST_THROUGHPUT, "token counts")]
)
def test_nobody_is_chosen_while_no_engine_tells_and_the_status_says_why(policy, words):
    works = {"b-1": WorkTold(Work(0.0), Work(10.0)), "b-2": WorkTold(error="cannot read metrics (status 404): none")}
    play = played(policy, works).start()
    assert (play.phase, play.condition("Ready")) == ("Pending", ("False", "InsufficientReadyPods"))
    assert f"metrics tell {words}: b-2: cannot read metrics (status 404)" in play.message("Scheduled")
    assert (play.holding(), names.SCHEDULED_PODS_ANNOTATION in play.adapter.annotations) == (set(), False)
    play.change_pod("b-1", work=told())
    assert play.later(1).status.instances == ("b-1",)


@pytest.mark.parametrize(
    ("policy", "coming"), [(Policy.LEAST_LATENCY, None), (Policy.LEAST_THROUGHPUT, WorkTold(IDLE, IDLE))]
)
def test_a_figure_that_is_about_to_come_is_waited_for(policy, coming):
    play = played(policy, {"b-1": told(requests=1, busy_s=9.0, prompt_tokens=9), "b-2": coming}).start()
    assert (play.holding(), play.condition("Ready")[0]) == (set(), "False")
    play.change_pod("b-2", work=told())
    assert play.later(1).status.instances == ("b-2",)


def test_metrics_are_of_no_matter_where_all_pods_are_to_have_it():
    play = Play(("b-1", "b-2"), policy=Policy.LEAST_LATENCY).start()
    assert play.status.instances == ("b-1", "b-2")


def test_an_adapter_that_runs_stays_when_its_engine_tells_nothing_any_more():
    play = played(Policy.LEAST_LATENCY, {"b-1": told(), "b-2": told(requests=1, busy_s=1.0)}).start()
    play.change_pod("b-1", work=WorkTold(error="cannot be reached"))
    written = len(play.writes)
    play.later(60)
    assert (play.status.instances, len(play.writes)) == (("b-1",), written)


# --- the readers


@pytest.mark.parametrize(("policy", "within_s"), [(Policy.LEAST_LATENCY, 3), (Policy.LEAST_THROUGHPUT, 13)])
def test_the_idle_engine_is_found_within_as_many_readings_as_it_takes(policy, within_s):
    async def story():
        async with AdapterCluster(policy=policy) as cluster:
            for name in THREE:
                cluster.pod(name)
                cluster.engine(name).tokens_per_s = 5.0
            cluster.engine("b-2").tokens_per_s = 0.0
            await cluster.run(10)
            cluster.adapter(replicas=1)
            await cluster.run(within_s)
            assert cluster.status()["instances"] == ["b-2"]

    loop.run(story())


def test_an_engine_whose_metrics_come_late_is_chosen_as_soon_as_they_do():
    async def story():
        async with AdapterCluster(policy=Policy.LEAST_LATENCY) as cluster:
            cluster.pod("b-1")
            cluster.engine("b-1").metrics_error = "cannot read metrics (status 404): none"
            cluster.adapter(replicas=1)
            await cluster.run(30)
            assert "status 404" in next(c["message"] for c in cluster.status()["conditions"] if c["type"] == "Ready")
            written = len(cluster.store.writes)
            await cluster.run(60)
            assert len(cluster.store.writes) == written
            cluster.engine("b-1").metrics_error = ""
            await cluster.run(12)
            assert cluster.status()["instances"] == ["b-1"]

    loop.run(story())


def test_a_fault_while_metrics_are_read_keeps_the_list():
    async def story():
        async with AdapterCluster(policy=Policy.LEAST_LATENCY) as cluster:

            async def broken(target, access):
                await asyncio.sleep(0.01)
                raise RuntimeError("boom")

            cluster.engines.work = broken
            cluster.pod("b-1")
            cluster.adapter()
            await cluster.run(5)
            assert cluster.status()["instances"] == ["b-1"]
            cluster.adapter("some", replicas=1)
            await cluster.run(15)
            conditions = cluster.status("some")["conditions"]
            assert "the reading failed: RuntimeError" in next(c["message"] for c in conditions if c["type"] == "Ready")

    loop.run(story())


def test_metrics_are_read_by_these_policies_only():
    async def story(policy):
        async with AdapterCluster(policy=policy) as cluster:
            cluster.pod("b-1")
            cluster.adapter()
            await cluster.run(25)
            return cluster.engines.metrics_read

    assert [loop.run(story(policy)) > 0 for policy in Policy] == [policy.is_by_work for policy in Policy]

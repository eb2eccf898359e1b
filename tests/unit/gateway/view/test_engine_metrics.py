"""What is read off an engine's metrics page: a real one's, and the odd ones."""

import dataclasses
import math
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aibrix_operator.gateway import engine_metrics
from aibrix_operator.gateway.engine_metrics import read, read_page

REAL = Path(__file__).parents[3] / "contract/engine/vllm-0.32.0-metrics.txt"

SGLANG = b"""# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m"} 3.0
sglang:num_queue_reqs{model_name="m"} 2.0
sglang:token_usage{model_name="m"} 0.28
sglang:prompt_tokens_total{model_name="m"} 800.0
sglang:generation_tokens_total{model_name="m"} 7557.0
sglang:num_requests_total{model_name="m"} 10.0
sglang:queue_time_seconds_sum{model_name="m"} 4.0
sglang:queue_time_seconds_count{model_name="m"} 8.0
sglang:utilization{model_name="m"} 0.5
"""


def test_the_page_of_a_real_vllm_says_what_the_client_librarys_parser_reads():
    page = REAL.read_bytes()
    samples = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            samples[sample.name] = sample.value
    found = read(page, 1.0, None).metrics
    count = samples["vllm:request_prompt_tokens_count"]
    assert count > 0
    assert found.running == samples["vllm:num_requests_running"]
    assert found.waiting == samples["vllm:num_requests_waiting"]
    assert found.kv_cache_usage == samples["vllm:kv_cache_usage_perc"]
    assert found.prompt_tokens_mean == samples["vllm:request_prompt_tokens_sum"] / count
    assert found.generated_tokens_mean == samples["vllm:request_generation_tokens_sum"] / count
    for mean, name in (
        (found.queue_mean_s, "queue_time"),
        (found.prefill_mean_s, "prefill_time"),
        (found.decode_mean_s, "decode_time"),
    ):
        total = samples[f"vllm:request_{name}_seconds_sum"]
        assert mean == total / samples[f"vllm:request_{name}_seconds_count"]
    assert (found.cpu_cache_usage, found.gpu_busy_ratio, found.utilization) == (None, None, None)


def test_the_page_of_an_sglang_is_read_by_its_own_names():
    found = read(SGLANG, 1.0, None).metrics
    assert (found.running, found.waiting, found.kv_cache_usage, found.utilization) == (3.0, 2.0, 0.28, 0.5)
    assert (found.prompt_tokens_mean, found.generated_tokens_mean, found.queue_mean_s) == (80.0, 755.7, 0.5)


def test_ranks_on_one_page_are_added_up_and_of_shares_the_fullest_counts():
    page = b"".join(
        b'vllm:num_requests_running{engine="%d"} %d\nvllm:kv_cache_usage_perc{engine="%d"} 0.%d\n' % (n, n + 1, n, n)
        for n in range(3)
    )
    assert read_page(page) == {"running": 6.0, "kv_cache_usage": 0.2}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"vllm:num_requests_running 4", 4.0),
        (b'vllm:num_requests_running{a="}",b="\\"{"} 4.0 1700000000000', 4.0),
        (b'vllm:num_requests_running{a="x"} 4\r', 4.0),
        (b"vllm:num_requests_running 1.5e+01", 15.0),
        (b"vllm:num_requests_running NaN", None),
        (b"vllm:num_requests_running +Inf", None),
        (b"vllm:num_requests_running four", None),
        (b"vllm:num_requests_running{", None),
        (b"vllm:num_requests_running", None),
        (b"vllm:num_requests_running_more 4", None),
        (b"# vllm:num_requests_running 4", None),
        (b"", None),
    ],
)
def test_a_line_is_read_as_the_text_format_has_it_or_not_at_all(line, value):
    assert read_page(line).get("running") == value


def page_of(tokens):
    return f"vllm:generation_tokens_total {tokens}\n".encode()


def rates(*pages):
    """The rate after each (second, tokens)."""
    reading, found = None, []
    for at_s, tokens in pages:
        reading = read(page_of(tokens) if tokens is not None else b"", at_s, reading)
        found.append(reading.metrics.output_tokens_per_s)
    return found


def test_the_rate_of_output_tokens_follows_with_a_time_constant_of_10_s():
    first, second, third = rates((0, 100), (1, 200), (11, 200 + 10 * 300))
    assert (first, second) == (None, 100.0)
    assert third == pytest.approx(100 + (1 - math.exp(-1)) * 200)


def test_an_idle_engine_keeps_its_rate_and_so_does_one_whose_counter_began_anew():
    assert rates((0, 100), (1, 200), (60, 200), (61, 5), (62, None), (63, 7)) == [None, *[100.0] * 5]
    assert rates((0, 100), (0, 200)) == [None, None]


def test_means_of_no_requests_are_unknown():
    page = b"vllm:request_queue_time_seconds_sum 0.0\nvllm:request_queue_time_seconds_count 0.0\n"
    assert read(page, 1.0, None).metrics.queue_mean_s is None


def test_each_field_of_the_metrics_has_a_source():
    words = {word for word, _ in engine_metrics._WORDS.values()}
    page = b"".join(name + b" 2\n" for name in engine_metrics._WORDS)
    assert set(read_page(page)) == words
    first = read(page, 1.0, None)
    later = read(page.replace(b"generation_tokens_total 2", b"generation_tokens_total 9"), 2.0, first).metrics
    assert all(getattr(later, field.name) is not None for field in dataclasses.fields(later))

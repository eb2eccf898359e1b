"""What the keeper takes from a vLLM metrics page."""

import pytest

from aibrix_operator.sandbox.real_engine.kvcached_standin import engine_metrics
from aibrix_operator.sandbox.real_engine.kvcached_standin.engine_metrics import Reading


def page(share: str = "0.25", pool: str = "1073741824", awake: str = "1.0", core: str = "0") -> str:
    """A page as vLLM 0.32 writes it, cut to what matters and some of what does not."""
    label = f'engine="{core}",model_name="tiny"'
    return f"""\
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{{label}}} {share}
vllm:cache_config_info{{block_size="128",engine="{core}",kv_cache_memory_bytes="{pool}",num_gpu_blocks="8192"}} 1.0
vllm:engine_sleep_state{{{label},sleep_state="awake"}} {awake}
vllm:engine_sleep_state{{{label},sleep_state="weights_offloaded"}} 0.0
vllm:e2e_request_latency_seconds_bucket{{le="+Inf",{label}}} 3.0
python_info{{implementation="CPython"}} 1.0
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(page(), Reading(268_435_456, is_asleep=False), id="a quarter of the pool"),
        pytest.param(page(share="0.0"), Reading(0, is_asleep=False), id="idle"),
        pytest.param(page(share="5e-1"), Reading(536_870_912, is_asleep=False), id="an exponent"),
        pytest.param(page(share="0.0", awake="0.0"), Reading(0, is_asleep=True), id="asleep"),
        pytest.param(page() + page(core="1"), Reading(536_870_912, is_asleep=False), id="two engine cores add up"),
        pytest.param(page(pool="None"), None, id="a pool of unknown size"),
        pytest.param(page().replace("kv_cache_usage", "renamed"), None, id="no usage"),
        pytest.param("", None, id="an empty page"),
        pytest.param("<html>502 Bad Gateway</html>", None, id="no metrics page"),
    ],
)
def test_use_is_the_share_of_the_pool_in_bytes(text: str, expected: Reading | None) -> None:
    assert engine_metrics.parse(text) == expected


def test_an_engine_that_tells_no_sleep_state_counts_as_awake() -> None:
    lines = [line for line in page().splitlines() if "sleep_state" not in line]
    assert engine_metrics.parse("\n".join(lines)) == Reading(268_435_456, is_asleep=False)


def test_a_label_value_with_quotes_and_commas_does_not_cut_the_others() -> None:
    odd = page().replace('num_gpu_blocks="8192"', 'note="a \\"b\\", c",num_gpu_blocks="8192"')
    assert engine_metrics.parse(odd) == Reading(268_435_456, is_asleep=False)

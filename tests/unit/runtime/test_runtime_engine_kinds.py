"""Command lines, environments, flag checks and metric names of the engine kinds."""

import pytest

from aibrix_operator.runtime.activity import UNOBSERVED, Activity, parse
from aibrix_operator.runtime.engines import catalog
from aibrix_operator.runtime.engines.kind import InvalidArgsError, Launch, UnverifiableArgsError
from aibrix_operator.runtime.records import ipc_name_for, merge_args
from aibrix_operator.runtime_api.wire import ActivateRequest

KINDS = catalog.Catalog()
VLLM, SGLANG = KINDS.launched_as("vllm"), KINDS.launched_as("sglang")


def launch(**more):
    fields = {
        "python": "/py",
        "model": "org/m",
        "served_name": "m",
        "host": "0.0.0.0",
        "port": 20_000,
        "can_sleep": True,
        "args": {"--max-model-len": "2048", "--enable-prefix-caching": ""},
    }
    return Launch(**(fields | more))


def test_vllm_command_line():
    assert VLLM.command(launch()) == [
        *("/py", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/m", "--served-model-name", "m"),
        *("--host", "0.0.0.0", "--port", "20000", "--enable-sleep-mode"),
        *("--max-model-len", "2048", "--enable-prefix-caching"),
    ]


def test_sglang_command_line():
    assert SGLANG.command(launch()) == [
        *("/py", "-m", "sglang.launch_server", "--model-path", "org/m", "--served-model-name", "m"),
        *("--host", "0.0.0.0", "--port", "20000"),
        *("--enable-metrics", "--enable-memory-saver", "--enable-weights-cpu-backup"),
        *("--max-model-len", "2048", "--enable-prefix-caching"),
    ]


def test_sglang_flags_that_a_claim_gives_itself_stand_once():
    line = SGLANG.command(launch(args={"--enable-metrics": "", "--enable-memory-saver": ""}))
    assert line[-3:] == ["--enable-weights-cpu-backup", "--enable-metrics", "--enable-memory-saver"]


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        (VLLM, "--enable-sleep-mode"),
        (SGLANG, "--enable-memory-saver"),
        (SGLANG, "--enable-weights-cpu-backup"),
    ],
)
def test_an_engine_that_cannot_sleep_is_started_without_the_flag(kind, flag):
    assert flag not in kind.command(launch(can_sleep=False))


def test_an_unknown_engine_is_launched_as_vllm_but_neither_checked_nor_put_to_sleep():
    assert KINDS.launched_as("other") is VLLM
    assert KINDS.named("other") is None
    assert (VLLM.can_sleep, SGLANG.can_sleep) == (True, True)


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("/models/x", "/models/x"),
        ("org/m", "org/m"),
        ("huggingface://org/m", "org/m"),
        ("hf://org/m", "org/m"),
        ("s3://bucket/m", "bucket/m"),
        ("file:///models/x", "/models/x"),
    ],
)
def test_what_an_engine_loads(url, source):
    assert catalog.model_source(url) == source


def test_environment_switches_kvcached_on_and_keeps_the_rest():
    own = {"HF_TOKEN": "t", "ENABLE_KVCACHED": "false", "KVCACHED_AUTOPATCH": "0"}
    assert catalog.environment(own, "kvc_m", "/shm") == {
        "HF_TOKEN": "t",
        "ENABLE_KVCACHED": "true",
        "KVCACHED_AUTOPATCH": "1",
        "KVCACHED_IPC_NAME": "kvc_m",
        "AIBRIX_KV_SEGMENT_DIR": "/shm",
        "VLLM_SERVER_DEV_MODE": "1",
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
    }
    given = {"VLLM_SERVER_DEV_MODE": "0", "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "true"}
    assert given.items() <= catalog.environment(given, "x", "/shm").items()


@pytest.mark.parametrize(
    ("args", "gpus", "message"),
    [
        (
            {"--gpu-memory-utilization": "0.9"},
            1,
            "--gpu-memory-utilization is incompatible with kvcached; use the pool KV policy instead",
        ),
        ({"--tensor-parallel-size": ""}, 1, "--tensor-parallel-size must be a positive integer"),
        ({"--tensor-parallel-size": "-1"}, 1, "--tensor-parallel-size must be a positive integer"),
        ({"--pipeline-parallel-size": "1.0"}, 1, "--pipeline-parallel-size must be a positive integer"),
        ({"--data-parallel-size": "x"}, 1, "--data-parallel-size must be a positive integer"),
        ({"--data-parallel-size": "2"}, 1, "--data-parallel-size=2 is unsupported by fixed topology pools"),
        ({"--tensor-parallel-size": "2"}, 1, "vLLM parallelism 2 must equal 1 GPU(s) visible to runtime"),
        ({}, 2, "vLLM parallelism 1 must equal 2 GPU(s) visible to runtime"),
        (
            {"--tensor-parallel-size": "2", "--pipeline-parallel-size": "3"},
            4,
            "vLLM parallelism 6 must equal 4 GPU(s) visible to runtime",
        ),
    ],
    ids=str,
)
def test_vllm_flags_that_do_not_fit_are_refused(args, gpus, message):
    with pytest.raises(InvalidArgsError) as refusal:
        VLLM.check_args(args, gpus)
    assert str(refusal.value) == message


def test_vllm_topology_cannot_be_checked_without_gpus():
    with pytest.raises(UnverifiableArgsError) as refusal:
        VLLM.check_args({"--tensor-parallel-size": "2"}, 0)
    assert str(refusal.value) == ("cannot validate vLLM TP/PP topology because no GPUs are visible to the runtime")


@pytest.mark.parametrize(
    ("args", "gpus"),
    [({}, 0), ({}, 1), ({"--tensor-parallel-size": "2", "--pipeline-parallel-size": "2"}, 4)],
    ids=["no-gpu", "one", "four"],
)
def test_vllm_flags_that_fit_pass(args, gpus):
    VLLM.check_args(args, gpus)


def test_legacy_flags_win_and_others_are_no_flags():
    assert merge_args({"--a": "1", "--b": ""}, {"engine-arg:--a": "2", "else": "x"}) == {"--a": "2", "--b": ""}
    assert merge_args(None, None) == {}


@pytest.mark.parametrize(
    ("model", "given", "name"),
    [("qwen3-0.6b", None, "kvc_qwen3-0-6b"), ("org/m ü", "", "kvc_org-m--"), ("m", "../x.y", "---x-y")],
)
def test_segment_names_are_spelled_as_kvcached_spells_them(model, given, name):
    assert ipc_name_for(ActivateRequest(model_name=model, artifact_url="x", ipc_name=given)) == name


PAGE = """\
# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_running{engine="0",model_name="other"} 40.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:request_success_total{finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{finished_reason="length",model_name="m"} 2.0
vllm:request_success_created{model_name="m"} 1.7e+09
"""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        pytest.param(PAGE, Activity(True, 3, 1, 7), id="summed-over-other-labels"),
        pytest.param(PAGE.replace("vllm:", "vllm_"), Activity(True, 3, 1, 7), id="underscore-spelling"),
        pytest.param(
            PAGE.replace("request_success", "num_requests_success"), Activity(True, 3, 1, 7), id="older-counter"
        ),
        pytest.param(PAGE.replace('model_name="m"', 'model_name="x"'), UNOBSERVED, id="another-engines-page"),
        pytest.param("", UNOBSERVED, id="empty"),
        pytest.param("<html>", UNOBSERVED, id="no-metrics"),
        pytest.param('vllm:num_requests_waiting{model_name="m"} 4', Activity(True, 0, 4, None), id="one-is-enough"),
        pytest.param('vllm:num_requests_waiting{model_name="m"} NaN', UNOBSERVED, id="nan"),
        pytest.param('vllm:num_requests_waiting{model_name="m"} +Inf', UNOBSERVED, id="infinite"),
        pytest.param('vllm:num_requests_waiting{model_name="m"} -1', UNOBSERVED, id="negative"),
        pytest.param('vllm:num_requests_waiting{model_name="m"', UNOBSERVED, id="cut"),
        pytest.param('vllm:num_requests_waiting{model_name="m"} x', UNOBSERVED, id="no-number"),
        pytest.param("vllm:num_requests_waiting 4", UNOBSERVED, id="no-label"),
        pytest.param(
            'vllm:num_requests_waiting{model_name="m"} 9e18\n' * 3, Activity(True, 0, 2**63 - 1, None), id="huge"
        ),
    ],
)
def test_activity_is_read_of_this_model_only(page, expected):
    assert parse(page, VLLM.metric_names, "m") == expected


def test_model_names_with_quotes_are_found():
    page = 'vllm:num_requests_waiting{model_name="a\\"b\\\\c"} 4'
    assert parse(page, VLLM.metric_names, 'a"b\\c') == Activity(True, 0, 4, None)


def test_sglang_has_names_of_its_own():
    page = 'sglang:num_running_reqs{model_name="m"} 2\nsglang:num_queue_reqs{model_name="m"} 1\n'
    assert parse(page, SGLANG.metric_names, "m") == Activity(True, 2, 1, None)

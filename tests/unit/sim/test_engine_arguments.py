"""The engines' command lines."""

import pytest

from aibrix_operator.sim.engine import arguments

VLLM = ("vllm", "--model", "org/m", "--served-model-name", "m", "--host", "127.0.0.1", "--port", "20000")


def test_the_command_line_of_a_runtime_agent_is_understood():
    parsed = arguments.parse(
        [*VLLM, "--enable-sleep-mode", "--max-model-len", "2048", "--enable-prefix-caching", "--tensor_parallel_size=2"]
    )
    assert parsed == arguments.Arguments(
        kind="vllm",
        model="org/m",
        served_names=("m",),
        host="127.0.0.1",
        port=20000,
        max_model_len=2048,
        max_running_requests=None,
        cards=2,
        max_loras=1,
        enable_lora=False,
    )


def test_sglang_has_its_own_words_for_the_same():
    parsed = arguments.parse(
        ["sglang", "--model-path", "org/m", "--context-length", "4096", "--tp", "2", "--max-running-requests", "8"]
    )
    assert (parsed.model, parsed.name, parsed.port) == ("org/m", "org/m", 30000)
    assert (parsed.max_model_len, parsed.cards, parsed.max_running_requests) == (4096, 2, 8)


@pytest.mark.parametrize(
    ("flags", "cards"),
    [((), 1), (("-tp", "2", "-pp", "3"), 6), (("--tensor-parallel-size", "4"), 4)],
)
def test_cards_are_tensor_times_pipeline_parallel(flags, cards):
    assert arguments.parse([*VLLM, *flags]).cards == cards


@pytest.mark.parametrize(("text", "length"), [("1k", 1000), ("1K", 1024), ("2M", 2 * 1024**2), ("7", 7)])
def test_lengths_are_read_as_vllm_reads_them(text, length):
    assert arguments.parse([*VLLM, "--max-model-len", text]).max_model_len == length


def test_the_last_mention_of_a_flag_counts_and_unknown_flags_do_not():
    parsed = arguments.parse([*VLLM, "--port", "20001", "--speculative-config", '{"n": 1}', "--enable-lora"])
    assert (parsed.port, parsed.enable_lora) == (20001, True)


def test_more_than_one_served_name_is_kept_in_order():
    assert arguments.parse(["vllm", "--model", "m", "--served-model-name", "a", "b"]).served_names == ("a", "b")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param([], "first word", id="nothing"),
        pytest.param(["trt", "--model", "m"], "first word", id="unknown engine"),
        pytest.param(["vllm"], "--model", id="no model"),
        pytest.param(["vllm", "serve", "--model", "m"], "unrecognized arguments: serve", id="stray word"),
        pytest.param([*VLLM, "--port", "-1"], "--port", id="negative"),
        pytest.param([*VLLM, "--max-model-len"], "--max-model-len", id="no value"),
        pytest.param([*VLLM, "-tp", "1.5"], "--tensor-parallel-size", id="fraction"),
    ],
)
def test_a_wrong_command_line_is_refused(words, message):
    with pytest.raises(arguments.UsageError, match=message):
        arguments.parse(words)

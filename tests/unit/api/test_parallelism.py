"""Engine arguments say how many GPUs a claim runs on, or why no warm pod can serve it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.api.parallelism import ParallelismError, parse_parallelism

TP, PP, DP = "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"
MAX_INT64 = (1 << 63) - 1


@pytest.mark.parametrize(
    ("args", "gpus"),
    [
        pytest.param({}, 1, id="no arguments"),
        pytest.param({"--max-model-len": "2048"}, 1, id="other arguments"),
        pytest.param({TP: "2"}, 2, id="tensor parallel"),
        pytest.param({PP: "3"}, 3, id="pipeline parallel"),
        pytest.param({TP: "2", PP: "3", DP: "1"}, 6, id="product"),
        pytest.param({TP: " 2\t"}, 2, id="blanks around"),
        pytest.param({TP: "", PP: "  ", DP: ""}, 1, id="empty and blank count as one"),
        pytest.param({TP: "+2"}, 2, id="a plus sign"),
        pytest.param({TP: "0002"}, 2, id="leading zeros"),
        pytest.param({TP: str(MAX_INT64)}, MAX_INT64, id="the largest int64"),
    ],
)
def test_parallelism_is_tensor_times_pipeline(args, gpus):
    assert parse_parallelism(args) == gpus


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(
            {"--gpu-memory-utilization": "0.45"},
            "--gpu-memory-utilization is not supported: the operator divides a card's memory itself",
            id="memory utilization",
        ),
        pytest.param(
            {"--gpu-memory-utilization": ""},
            "--gpu-memory-utilization is not supported: the operator divides a card's memory itself",
            id="memory utilization without a value",
        ),
        pytest.param({TP: "invalid"}, f"{TP} must be a positive integer, and is 'invalid'", id="a word"),
        pytest.param({TP: "0"}, f"{TP} must be a positive integer, and is '0'", id="zero"),
        pytest.param({PP: "-1"}, f"{PP} must be a positive integer, and is '-1'", id="negative"),
        pytest.param({PP: "1.0"}, f"{PP} must be a positive integer, and is '1.0'", id="a decimal"),
        pytest.param({TP: "2_0"}, f"{TP} must be a positive integer, and is '2_0'", id="an underscore"),
        pytest.param({TP: "++2"}, f"{TP} must be a positive integer, and is '++2'", id="two signs"),
        pytest.param({TP: "٢"}, f"{TP} must be a positive integer, and is '٢'", id="digits beyond ASCII"),
        pytest.param({DP: "x"}, f"{DP} must be a positive integer, and is 'x'", id="data parallel a word"),
        pytest.param({DP: "2"}, f"{DP}=2 is unsupported by fixed topology pools", id="data parallel"),
        pytest.param(
            {TP: str(MAX_INT64 + 1)},
            f"{TP} must be a positive integer, and is '{MAX_INT64 + 1}'",
            id="one more than int64",
        ),
        pytest.param(
            {TP: "9" * 5000}, f"{TP} must be a positive integer, and is '{'9' * 64}…'", id="thousands of digits"
        ),
        pytest.param(
            {TP: str(MAX_INT64), PP: "2"}, f"{TP}={MAX_INT64} times {PP}=2 overflows", id="a product beyond int64"
        ),
    ],
)
def test_arguments_that_fail_a_claim_are_named(args, message):
    with pytest.raises(ParallelismError) as refused:
        parse_parallelism(args)
    assert str(refused.value) == message


@given(tensor=st.integers(1, 1 << 40), pipeline=st.integers(1, 1 << 40), blank=st.sampled_from(["", " ", "\n"]))
def test_the_product_is_exact_or_refused(tensor, pipeline, blank):
    args = {TP: f"{blank}{tensor}{blank}", PP: f"{pipeline}{blank}"}
    if tensor * pipeline <= MAX_INT64:
        assert parse_parallelism(args) == tensor * pipeline
    else:
        with pytest.raises(ParallelismError, match="overflows"):
            parse_parallelism(args)

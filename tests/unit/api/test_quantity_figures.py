"""A perGPU figure becomes whole bytes, or a sentence that names its field."""

import pytest

from aibrix_operator.api.quantity import PER_GPU_MISSING, FigureError, QuantityError, figure_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        pytest.param("30Gi", 30 << 30, id="whole gibibytes"),
        pytest.param("5.6Gi", 6_012_954_215, id="a fraction of a byte rounds up"),
        pytest.param("1048576.1", 1_048_577, id="from 1Mi on fractions round up"),
        pytest.param("1Mi", 1 << 20, id="1Mi itself"),
        pytest.param("1", 1, id="one byte"),
        pytest.param("1000m", 1, id="a thousand thousandths are whole"),
        pytest.param("1Pi", 1 << 50, id="1Pi itself"),
        pytest.param("3e10", 30_000_000_000, id="exponent"),
        pytest.param(1_073_741_824, 1 << 30, id="a bare integer"),
    ],
)
def test_a_usable_figure_is_whole_bytes(text, size):
    assert figure_bytes("kvFloor", text) == size


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        pytest.param("kvFloor", "0", "spec.perGPU.kvFloor is 0, which is not positive", id="zero"),
        pytest.param("kvFloor", 0, "spec.perGPU.kvFloor is 0, which is not positive", id="the integer zero"),
        pytest.param("kvFloor", "0Gi", "spec.perGPU.kvFloor is 0Gi, which is not positive", id="zero with a suffix"),
        pytest.param(
            "maximumFootprint", "-1Gi", "spec.perGPU.maximumFootprint is -1Gi, which is not positive", id="negative"
        ),
        pytest.param(
            "maximumFootprint", "2Pi", "spec.perGPU.maximumFootprint is 2Pi, which is more than 1Pi", id="too large"
        ),
        pytest.param(
            "kvFloor",
            "1125899906842624001m",
            "spec.perGPU.kvFloor is 1125899906842624001m, which is more than 1Pi",
            id="a thousandth too large",
        ),
        pytest.param(
            "kvFloor", "1e999999999", "spec.perGPU.kvFloor is 1e999999999, which is more than 1Pi", id="endless"
        ),
        pytest.param(
            "kvFloor", "30m", "spec.perGPU.kvFloor is 30m, which is not a whole number of bytes", id="milli for mega"
        ),
        pytest.param(
            "kvFloor",
            "1048575.5",
            "spec.perGPU.kvFloor is 1048575.5, which is not a whole number of bytes",
            id="a fraction under 1Mi",
        ),
        pytest.param(
            "kvFloor",
            "",
            "spec.perGPU.kvFloor is empty, which is not a quantity: it is empty",
            id="empty",
        ),
        pytest.param(
            "kvFloor",
            "1GB",
            "spec.perGPU.kvFloor is 1GB, which is not a quantity: it must be a decimal number followed by a suffix",
            id="no quantity",
        ),
    ],
)
def test_an_unusable_figure_names_its_field_its_text_and_the_reason(field, text, message):
    with pytest.raises(FigureError) as refused:
        figure_bytes(field, text)
    assert str(refused.value) == message
    assert refused.value.field == field


def test_a_figure_error_is_a_quantity_error_so_that_one_except_catches_both():
    assert issubclass(FigureError, QuantityError)
    assert PER_GPU_MISSING == "spec.perGPU is missing"

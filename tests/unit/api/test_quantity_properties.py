"""What holds for every quantity, whatever its digits."""

import contextlib
import math
import string
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.api.quantity import FigureError, QuantityError, figure_bytes, parse_quantity

SUFFIXES = {
    "": Fraction(1),
    **{
        suffix: Fraction(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
    **{f"e{power}": Fraction(10) ** power for power in range(-12, 25)},
    **{f"E+{power}": Fraction(10) ** power for power in range(25)},
}
MAX_INT64 = (1 << 63) - 1

signs = st.sampled_from(["", "+", "-"])
digits = st.text("0123456789", max_size=30)
suffixes = st.sampled_from(sorted(SUFFIXES))


def away_from_zero(value: Fraction) -> Fraction:
    nanos = abs(value) * 10**9
    return Fraction(math.ceil(nanos), 10**9) * (-1 if value < 0 else 1)


@given(sign=signs, whole=digits, fraction=digits, suffix=suffixes)
def test_a_quantity_is_its_number_times_its_suffix(sign, whole, fraction, suffix):
    exact = Fraction(int((whole + fraction) or "0"), 10 ** len(fraction)) * SUFFIXES[suffix]
    expected = away_from_zero(-exact if sign == "-" else exact)
    if suffix.endswith("i"):
        expected = max(Fraction(-MAX_INT64), min(expected, Fraction(MAX_INT64)))
    assert parse_quantity(f"{sign}{whole or '0'}.{fraction}{suffix}") == expected


@given(
    st.text(string.printable, max_size=12)
    | st.text(max_size=6)
    | st.from_regex(r"\A[+-]?[0-9.]*[eEinumkKMGTP]*[+-]?[0-9]*\Z")
)
def test_any_text_is_whole_nanos_or_a_quantity_error(text):
    with contextlib.suppress(QuantityError):  # the other outcome; the reader's own errors would come through
        assert (parse_quantity(text) * 10**9).denominator == 1


@given(size=st.integers(1, 1 << 50), suffix=st.sampled_from(["", "e0", "E0"]))
def test_whole_bytes_come_back_as_they_were_written(size, suffix):
    assert figure_bytes("kvFloor", f"{size}{suffix}") == figure_bytes("kvFloor", size) == size


@given(sign=signs, whole=digits, fraction=digits, suffix=suffixes)
def test_a_figure_is_the_value_rounded_up_or_an_error_with_its_reason(sign, whole, fraction, suffix):
    text = f"{sign}{whole or '0'}.{fraction}{suffix}"
    value = parse_quantity(text)
    if value <= 0:
        reason = "not positive"
    elif value > 1 << 50:
        reason = "more than 1Pi"
    elif value < 1 << 20 and value.denominator != 1:
        reason = "not a whole number of bytes"
    else:
        assert 0 <= figure_bytes("kvFloor", text) - value < 1
        return
    with pytest.raises(FigureError) as refused:
        figure_bytes("kvFloor", text)
    assert (refused.value.reason, refused.value.text) == (reason, text)

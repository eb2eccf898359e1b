"""Sizes read as Go's %.1f prints them."""

import pytest

from aibrix_operator.ledger.figures import gib, size

GIB, MIB = 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        pytest.param(40 * GIB, "40.0 GiB", id="whole"),
        pytest.param(69_889_855_324, "65.1 GiB", id="of the H20 table"),
        pytest.param(18_838_800_302, "17.5 GiB", id="rounded down"),
        pytest.param(26_940_182_364, "25.1 GiB", id="rounded up"),
        pytest.param(GIB // 4, "0.2 GiB", id="an exact half goes to the even digit below"),
        pytest.param(3 * GIB // 4, "0.8 GiB", id="an exact half goes to the even digit above"),
        pytest.param(GIB // 20, "0.0 GiB", id="just below a twentieth"),
        pytest.param(GIB // 20 + 1, "0.1 GiB", id="just above a twentieth"),
        pytest.param(0, "0.0 GiB", id="nothing"),
        pytest.param(-1, "0.0 GiB", id="overdrawn by a byte, without a minus"),
        pytest.param(-40 * GIB, "0.0 GiB", id="overdrawn"),
    ],
)
def test_gib_has_one_decimal_and_nothing_below_zero(size_bytes, text):
    assert gib(size_bytes) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        pytest.param(60, "60 bytes", id="bytes"),
        pytest.param(MIB - 1, "1048575 bytes", id="under a MiB"),
        pytest.param(MIB, "1.0 MiB", id="a MiB"),
        pytest.param(256 * MIB, "256.0 MiB", id="MiB"),
        pytest.param(314_572_800, "300.0 MiB", id="a sleeping stand-in"),
        pytest.param(GIB - 1, "1024.0 MiB", id="under a GiB"),
        pytest.param(GIB, "1.0 GiB", id="a GiB"),
        pytest.param(round(1.3 * GIB), "1.3 GiB", id="a sleeping 8B model"),
    ],
)
def test_a_sleep_note_uses_the_largest_unit_that_gives_one(size_bytes, text):
    assert size(size_bytes) == text

"""A card's bar: as wide as it is asked to be, every part in proportion, whatever the figures."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from aibrix_operator.explain import picture
from aibrix_operator.explain.picture import Share, bar, cells

GIB = 1 << 30


def drawn(usable_gib, *shares, width=100):
    return bar(usable_gib * GIB, [Share(name, *(n * GIB for n in sizes)) for name, *sizes in shares], width).plain


@pytest.mark.parametrize(
    ("shares", "line"),
    [
        pytest.param([], "·" * 10, id="empty"),
        pytest.param([("a", 30, 50)], "███░░░░░··", id="idle"),
        pytest.param([("a", 30, 50, 20)], "███▓▓░░░··", id="some of the limit is mapped"),
        pytest.param([("a", 30, 50, 70)], "███▓▓▓▓▓··", id="more mapped than the limit"),
        pytest.param([("a", 40, 60), ("b", 40, 60)], "██░░░██░░░", id="promised twice"),
    ],
)
def test_who_has_what(shares, line):
    assert drawn(100, *shares, width=10) == line


@given(st.lists(st.integers(0, 10**12), max_size=8), st.integers(1, 200))
def test_cells_fill_the_width_and_none_is_off_by_one(sizes, width):
    found = cells(sizes, width)
    total = sum(sizes)
    assert sum(found) == (width if total else 0)
    assert all(abs(cell - width * size / total) < 1 for cell, size in zip(found, sizes, strict=True) if total)


def test_a_drawing_names_everybody_and_what_is_free():
    console = Console(file=io.StringIO(), width=80)
    console.print(picture.draw("H20", 100 * GIB, [Share("a", 30 * GIB, 10 * GIB), Share("b", 20 * GIB, 15 * GIB)]))
    told = " ".join(console.file.getvalue().split())
    assert "H20, 100.0 GiB usable" in told
    assert "a █ footprint 30.0 GiB ░ KV limit 10.0 GiB" in told
    assert "free · 25.0 GiB" in told

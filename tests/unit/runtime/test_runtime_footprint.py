"""What an engine holds asleep, from the readings before and after: attributed surely or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.runtime import footprint

GIB = 1 << 30
A, B = "GPU-a", "GPU-b"
OWN = frozenset({10, 11})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({10: {A: 6 * GIB}}, {10: {A: GIB}}, GIB, id="one-process"),
        pytest.param({10: {A: GIB}, 11: {A: 5 * GIB}}, {10: {A: GIB}, 11: {A: GIB}}, 2 * GIB, id="its-tree-is-summed"),
        pytest.param({10: {A: 6 * GIB}, 11: {B: 6 * GIB}}, {10: {A: GIB}, 11: {B: 2 * GIB}}, 2 * GIB, id="fullest-gpu"),
        pytest.param(
            {10: {A: 6 * GIB}, 11: {B: 6 * GIB}}, {10: {A: GIB}, 11: {B: 6 * GIB}}, None, id="one-gpu-did-not"
        ),
        pytest.param({10: {A: 6 * GIB}}, {10: {A: 0}}, None, id="nothing-left-is-no-sleep"),
        pytest.param({10: {A: 6 * GIB}}, {}, None, id="not-seen-after"),
        pytest.param({}, {10: {A: GIB}}, None, id="not-seen-before"),
        pytest.param({10: {A: GIB + 1}}, {10: {A: 1}}, 1, id="drop-of-exactly-one-gib"),
        pytest.param({10: {A: GIB}}, {10: {A: 1}}, None, id="drop-below-one-gib"),
        pytest.param({10: {A: 5 * GIB}}, {10: {A: 3 * GIB}}, 3 * GIB, id="drop-of-exactly-forty-percent"),
        pytest.param({10: {A: 5 * GIB}}, {10: {A: 3 * GIB + 1}}, None, id="drop-below-forty-percent"),
        pytest.param(
            {10: {A: 6 * GIB}, 77: {A: 9 * GIB}}, {10: {A: 6 * GIB}, 77: {A: GIB}}, None, id="never-a-strangers-drop"
        ),
        pytest.param(
            {10: {A: 6 * GIB}, 77: {A: 9 * GIB}},
            {10: {A: GIB}, 77: {A: GIB}},
            GIB,
            id="a-strangers-drop-does-not-hide-it",
        ),
    ],
)
def test_own_processes_are_counted_when_nvml_names_them(before, after, expected):
    assert footprint.sleeping_bytes(OWN, before, after) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({70: {A: 6 * GIB}}, {70: {A: GIB}}, GIB, id="the-one-that-fell"),
        pytest.param(
            {70: {A: 9 * GIB}, 71: {A: 6 * GIB}}, {70: {A: GIB}, 71: {A: 2 * GIB}}, GIB, id="twice-the-next-drop"
        ),
        pytest.param(
            {70: {A: 9 * GIB}, 71: {A: 6 * GIB}}, {70: {A: GIB}, 71: {A: 2 * GIB - 1}}, None, id="not-twice-the-next"
        ),
        pytest.param(
            {70: {A: 6 * GIB}, 71: {A: GIB}}, {70: {A: GIB}, 71: {A: 9 * GIB}}, GIB, id="a-grown-neighbour-is-no-rival"
        ),
        pytest.param(
            {70: {A: 6 * GIB}, 71: {B: 6 * GIB}}, {70: {A: GIB}, 71: {B: 2 * GIB}}, 2 * GIB, id="each-gpu-by-itself"
        ),
        pytest.param(
            {70: {A: 6 * GIB}, 71: {B: 6 * GIB}}, {70: {A: GIB}, 71: {B: 6 * GIB}}, None, id="one-gpu-without-answer"
        ),
        pytest.param({70: {A: 0}, 71: {A: 0}}, {70: {A: 0}, 71: {A: 0}}, None, id="all-zeros"),
        pytest.param({70: {A: 6 * GIB}}, {71: {A: GIB}}, None, id="no-process-seen-twice"),
        pytest.param({}, {}, None, id="no-reading"),
    ],
)
def test_the_largest_drop_is_taken_when_nvml_names_none_of_them(before, after, expected):
    assert footprint.sleeping_bytes(OWN, before, after) == expected


def test_peak_is_the_fullest_gpu_of_the_tree():
    held = {10: {A: 1, B: 5}, 11: {A: 3}, 77: {A: 90}}
    assert footprint.peak_bytes(OWN, held) == 5
    assert footprint.peak_bytes(frozenset(), held) == 0


HELD = st.dictionaries(
    st.sampled_from([10, 11, 70, 71]), st.dictionaries(st.sampled_from([A, B]), st.integers(0, 9 * GIB))
)


@given(HELD, HELD)
def test_a_figure_is_always_one_that_was_read_and_below_what_was_held(before, after):
    figure = footprint.sleeping_bytes(OWN, before, after)
    if figure is not None:
        own = [sum(after.get(pid, {}).get(gpu, 0) for pid in OWN) for gpu in (A, B)]
        assert figure > 0
        assert figure in own or figure in [held for gpus in after.values() for held in gpus.values()]
        assert figure <= max(sum(gpus.get(gpu, 0) for gpus in before.values()) for gpu in (A, B)) - GIB


@given(HELD, HELD)
def test_the_order_of_processes_does_not_matter(before, after):
    def turned(held):
        return dict(reversed(held.items()))

    assert footprint.sleeping_bytes(OWN, before, after) == footprint.sleeping_bytes(OWN, turned(before), turned(after))

"""Retry annotations: any text that somebody wrote is read, and nobody waits for ever."""

from datetime import timedelta

import pytest
from adapter_play import EPOCH
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.api import names
from aibrix_operator.modeladapter.retries import Tries, noted, pod_part, tries_of


@pytest.mark.parametrize(("count", "seconds"), [(0, 0), (1, 10), (2, 20), (3, 40), (4, 80), (9, 300), (10**30, 300)])
def test_waits_double_and_are_bounded(count, seconds):
    assert Tries(count, EPOCH).due_in_s(EPOCH) == seconds
    assert Tries(count, EPOCH).due_in_s(EPOCH + timedelta(seconds=seconds)) == 0
    assert Tries(count, EPOCH + timedelta(days=9)).due_in_s(EPOCH) == seconds


@given(st.text(), st.text())
def test_any_text_is_read(count, moment):
    annotations = {names.RETRY_COUNT_PREFIX + "p": count, names.LAST_RETRY_PREFIX + "p": moment}
    tries = tries_of(annotations, "p", EPOCH)
    assert 0 <= tries.due_in_s(EPOCH) <= 300


@given(st.text("abz09.-", min_size=1, max_size=253), st.integers(1, 99))
def test_what_is_noted_is_read_back(pod, count):
    annotations = noted(pod, Tries(count, EPOCH))
    assert tries_of(annotations, pod, None) == Tries(count, EPOCH)
    assert all(len(key.partition("/")[2]) <= 63 for key in annotations)


def test_long_names_that_differ_at_their_end_are_told_apart():
    assert pod_part("p" * 60 + "a") != pod_part("p" * 60 + "b")


def test_a_pod_that_turned_ready_after_the_last_try_begins_anew():
    annotations = noted("p", Tries(5, EPOCH))
    assert tries_of(annotations, "p", EPOCH + timedelta(seconds=1)) == Tries()
    assert tries_of(annotations, "p", EPOCH).is_given_up

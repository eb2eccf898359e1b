"""What is planted is there and nowhere else, and what cannot be planted is no fault that was found."""

import dataclasses

import pytest
from faults_of_the_ledger import FAULTS
from planting import Misplanted


def test_a_fault_whose_text_is_gone_is_refused(hunter):
    gone = dataclasses.replace(FAULTS[0], text="a text that stands nowhere")
    with pytest.raises(Misplanted, match="occurs 0 times"):
        hunter.hunt(gone, range(1))


def test_a_fault_whose_text_is_there_twice_is_refused(hunter):
    twice = dataclasses.replace(FAULTS[0], text="occupant")
    with pytest.raises(Misplanted, match=r"times in aibrix_operator\.ledger\.card, not once"):
        hunter.hunt(twice, range(1))


def test_a_module_that_is_not_there_is_refused(hunter):
    nowhere = dataclasses.replace(FAULTS[0], module="ledger.card_of_old")
    with pytest.raises(Misplanted, match="was never imported"):
        hunter.hunt(nowhere, range(1))


def test_a_fault_that_changes_nothing_is_not_found(hunter):
    same = dataclasses.replace(FAULTS[0], wrong=FAULTS[0].text)
    assert hunter.hunt(same, range(1)).seed is None


@pytest.mark.parametrize("seed", range(3))
def test_schedules_that_tell_of_faults_tell_of_none_where_none_is_planted(seed, hunter):
    assert hunter.hunt(None, range(seed, seed + 1)).law == ""

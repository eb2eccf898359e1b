"""Each wrong version of a rule is found within its stated number of random schedules."""

import pytest
from faults_of_division import FAULTS
from hunting import expect_found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault, hunter, record_property):
    expect_found(fault, hunter, record_property)

"""Where an engine returns to when a division fails after it was shrunk."""

import pytest

from aibrix_operator.ledger.division import take_back_bytes


@pytest.mark.parametrize(
    ("before", "record", "written", "back"),
    [
        pytest.param(600, 600, 200, 600, id="held as recorded"),
        pytest.param(800, 600, 200, 600, id="held above its record: to the record"),
        pytest.param(400, 600, 200, 400, id="held below its record: to where it was"),
        pytest.param(600, None, 200, 600, id="no record"),
        pytest.param(600, 0, 200, 600, id="a record of zero is none"),
        pytest.param(600, 150, 200, 200, id="never below what was written"),
    ],
)
def test_an_engine_returns_to_the_lower_of_limit_and_record_but_never_below_what_was_written(
    before, record, written, back
):
    assert take_back_bytes(before, record, written) == back

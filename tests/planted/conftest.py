"""One server of hunts for all tests of a process."""

import pytest
from hunting import Hunter


@pytest.fixture(scope="session")
def hunter():
    hunter = Hunter()
    yield hunter
    hunter.close()

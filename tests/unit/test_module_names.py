"""pytest imports test modules by their bare name: two of one name end a whole session."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_no_two_modules_of_tests_share_a_name():
    names = Counter(path.name for path in TESTS.rglob("*.py") if path.name not in ("conftest.py", "__init__.py"))
    assert [name for name, count in names.items() if count > 1] == []

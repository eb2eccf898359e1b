"""What the whole check forgives: few tests that pass when they are run again, each shown."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
FAILS = """
import pytest

tried = set()


@pytest.mark.parametrize("number", range({tests}))
def test_of_a_moment(number):
    again = number in tried
    tried.add(number)
    assert again or {always}, "a bad moment"


def test_that_is_broken():
    assert not {broken}
"""


def run(folder, *arguments, tests=1, always=False, broken=False):
    """Exit code and output of pytest over tests that fail when first run."""
    (folder / "conftest.py").write_text(
        "import failed_once\n\ndef pytest_configure(config):\n    config.pluginmanager.register(failed_once)\n"
    )
    (folder / "test_it.py").write_text(FAILS.format(tests=tests, always=always, broken=broken))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, folder, *arguments]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(TESTS)}, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("processes", [(), ("-n", "1")])
def test_a_test_that_passes_when_run_again_is_forgiven_and_shown(tmp_path, processes):
    code, output = run(tmp_path, "--reruns", "1", *processes)
    assert code == 0
    assert "failed once, 1 (at most 3 are forgiven)" in output
    assert "FAILED ONCE test_it.py::test_of_a_moment[0] (call)" in output
    assert "AssertionError: a bad moment" in output


def test_more_than_three_are_not_forgiven(tmp_path):
    assert run(tmp_path, "--reruns", "1", tests=3)[0] == 0
    assert run(tmp_path, "--reruns", "1", tests=4)[0] == 1


def test_a_test_that_fails_again_fails_the_run(tmp_path):
    code, output = run(tmp_path, "--reruns", "1", broken=True)
    assert code == 1
    assert "FAILED test_it.py::test_that_is_broken" in output


def test_at_the_desk_nothing_is_forgiven(tmp_path):
    assert run(tmp_path)[0] == 1
    code, output = run(tmp_path, always=True)
    assert (code, "failed once" in output) == (0, False)

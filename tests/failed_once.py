"""What ``--reruns`` forgave: a test that failed and then passed is shown whole, and only few are forgiven.

Only the whole check, ``.ci/run``, runs a failed test again. Tests against real processes share a machine with whatever
else it does; one of thousands that met a bad moment should not hide what the others say, nor pass unseen.
"""

import pytest

FORGIVEN_AT_MOST = 3
"""Tests of one run. More than these are no bad moment."""


def pytest_terminal_summary(terminalreporter):
    """Every first failure, as if it had failed the run."""
    reports = terminalreporter.stats.get("rerun", ())
    if not reports:
        return
    terminalreporter.section(f"failed once, {len(reports)} (at most {FORGIVEN_AT_MOST} are forgiven)")
    for report in reports:
        terminalreporter.write_line(f"FAILED ONCE {report.nodeid} ({report.when})")
        terminalreporter.write_line(report.longreprtext)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    terminalreporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminalreporter is not None and len(terminalreporter.stats.get("rerun", ())) > FORGIVEN_AT_MOST:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

"""Puts ``tests/`` on the path, so that every test finds ``builders`` and ``simulated``.

A shell ignores SIGINT in what it runs in the background, and so would every process that tests start from there.
"""

import signal

import failed_once
from hypothesis import HealthCheck, Phase, settings
from redis_server import own_redis_server, redis_server

__all__ = ["own_redis_server", "redis_server"]

signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure: neither an example nor drawing one has a time limit (a test has, pytest's).
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
# For `make mutate`: the same examples for every mutant, and no time spent on finding the smallest that fails.
settings.register_profile(
    "mutation",
    settings.get_profile("unhurried"),
    max_examples=25,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)


def pytest_configure(config):
    config.pluginmanager.register(failed_once, "failed-once")


def pytest_terminal_summary(terminalreporter):
    """The table of planted faults: it hangs on the reports, because the tests may have run in other processes."""
    reports = [r for outcome in ("passed", "failed") for r in terminalreporter.stats.get(outcome, ())]
    told = [value for r in reports for name, value in getattr(r, "user_properties", ()) if name == "planted"]
    rows = list({(row[0], row[1]): row for row in told}.values())  # a test that is run again tells twice
    if not rows:
        return
    found = [row for row in rows if row[2]]
    terminalreporter.section(f"planted faults: {len(found)} of {len(rows)} found")
    for name, module, seeds, law in sorted(rows, key=lambda row: (row[1], row[0])):
        sentence = law.splitlines()[0] if law else ""
        terminalreporter.write_line(f"{seeds or 'none':>5}  {module:22} {name:72} {sentence:.100}")

"""Puts ``tests/`` on the path, so that every test finds ``builders`` and ``simulated``.

A shell ignores SIGINT in what it runs in the background, and so would every process that tests start from there.
"""

import signal

from hypothesis import HealthCheck, Phase, settings

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

"""Puts ``tests/`` on the path, so that every test finds ``builders`` and ``simulated``.

A shell ignores SIGINT in what it runs in the background, and so would every process that tests start from there.
"""

import signal

from hypothesis import Phase, settings

signal.signal(signal.SIGINT, signal.default_int_handler)

# For `make mutate`: the same examples for every mutant, and no time spent on finding the smallest that fails.
settings.register_profile(
    "mutation", max_examples=25, derandomize=True, database=None, deadline=None, phases=[Phase.explicit, Phase.generate]
)

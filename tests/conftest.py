"""Puts ``tests/`` on the path, so that every test finds ``builders`` and ``simulated``.

A shell ignores SIGINT in what it runs in the background, and so would every process that tests start from there.
"""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)

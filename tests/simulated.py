"""Tests that play a story on a whole cluster in memory, in virtual time."""

from __future__ import annotations

import functools
import inspect
import logging

from aibrix_operator.sim import loop
from aibrix_operator.sim.world import SimulatedCluster

GIB = 1 << 30
MIB = 1 << 20
H20 = 102_102_110_044
"""Usable bytes of an H20."""
CARD_24 = 24 * GIB


def simulated(story):
    """Make ``async def story(cluster, ...)`` a test: it gets a running cluster, and fails when a law was broken, a pass
    raised, or anything of ours was logged as an error."""
    parameters = list(inspect.signature(story).parameters.values())[1:]
    signature = inspect.Signature(parameters)

    @functools.wraps(story)
    def test(*values, **named):
        errors = _Errors()
        logger = logging.getLogger("aibrix_operator")
        logger.addHandler(errors)
        try:
            loop.run(_play(story, signature.bind(*values, **named).arguments))
        finally:
            logger.removeHandler(errors)
        assert not errors.texts, "\n".join(errors.texts)

    test.__signature__ = signature
    del test.__wrapped__
    return test


async def _play(story, arguments):
    async with SimulatedCluster() as cluster:
        await story(cluster, **arguments)
        cluster.check()


class _Errors(logging.Handler):
    def __init__(self):
        super().__init__(logging.ERROR)
        self.texts = []

    def emit(self, record):
        self.texts.append(logging.Formatter().format(record))


def model(claim):
    """The served name of a claim that ``SimulatedCluster.apply`` made."""
    return f"model-of-{claim}"


def limits(cluster, *claims):
    """Recorded KV limits, in the order of ``claims``."""
    return tuple(cluster.status(c).instances[0].kv_limit_bytes for c in claims)


def actions(runtime):
    """(action, model, bytes) of every call that changed something."""
    return [call[:3] for call in runtime.calls]


def writes(runtime):
    """(model, bytes) of every KV limit written."""
    return [(m, limit) for action, m, limit, _ in runtime.calls if action == "kv-limit"]


def starts(runtime):
    """Models in the order in which they were started."""
    return [m for action, m, _, _ in runtime.calls if action == "activate"]


def reasons(cluster, claim):
    """Reasons of a claim's Events, oldest first."""
    return [str(reason) for reason, _ in cluster.events(claim=claim)]

"""What users, engines and nodes do in each family of acceptance scenarios, with nothing asserted on the way.

Each story leaves time enough for what it waits for to be done a minute later, as after a crash, and ends at rest.
"""

import pytest
from points import differences
from simulated import CARD_24

PATIENCE_S = 70.0
"""Between two wishes: the longest wait between two tries is over."""

START_S = 45.0
"""For an engine to serve, also where its first event was lost."""


def story(*scenarios):
    """Make ``async def play(cluster)`` a test: wherever it is disturbed, it ends as if nothing had been.

    ``scenarios`` are the numbers of the acceptance scenarios that it plays. That all points are played takes its time
    on a machine with much else to do.
    """

    def register(play):
        def test(record_property):
            plays, found = differences(play)
            record_property("points", plays)
            assert plays
            assert not found, "\n".join(found)

        test.__name__, test.__doc__, test.__module__ = play.__name__, play.__doc__, play.__module__
        for scenario in scenarios:
            test = pytest.mark.acceptance(scenario)(test)
        return pytest.mark.timeout(900)(test)

    return register


def two_claims(cluster, **runtime):
    """Claims a and b on one card; its runtime."""
    pod = cluster.add_pod("warm-0", CARD_24, **runtime)
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    return pod

"""What the sidecar of a simulated Pod does as the real one does it."""

import pytest
from simulated import CARD_24, GIB

from aibrix_operator.sim import loop
from aibrix_operator.sim.world import SimulatedCluster


@pytest.mark.parametrize(("is_dead", "left"), [(True, []), (False, ["model-of-a"])])
def test_what_has_no_process_takes_no_time_to_exit(is_dead, left):
    """As in the real sidecar, which drops it at once: for a while its card would look fuller than it is."""

    async def play():
        async with SimulatedCluster() as cluster:
            runtime = cluster.add_pod("warm-0", CARD_24, stop_s=15.0)
            cluster.seat("a", "warm-0", 6 * GIB, GIB, limit_bytes=5 * GIB)
            if is_dead:
                runtime.fail("model-of-a")
            runtime.deactivate("model-of-a")
            return list(runtime.engines)

    assert loop.run(play()) == left

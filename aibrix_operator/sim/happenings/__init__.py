"""Everything that can happen in a schedule. Importing this package fills ``sim.happening.REGISTRY``."""

from aibrix_operator.sim.happenings import (
    api_server,
    calls,
    cards,
    engines,
    load,
    operators,
    other_hands,
    pods,
    sleepers,
    users,
)

__all__ = ["api_server", "calls", "cards", "engines", "load", "operators", "other_hands", "pods", "sleepers", "users"]

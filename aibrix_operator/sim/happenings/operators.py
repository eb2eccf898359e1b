"""The operator's own process."""

from __future__ import annotations

from aibrix_operator.sim.happening import Stage, fault


@fault("restarted-operator", 2)
async def operator_restarts(stage: Stage) -> None:
    """The operator ends as at SIGTERM, and starts again."""
    stage.tell("the operator restarts")
    await stage.cluster.stop_controller()
    stage.cluster.start_controller()

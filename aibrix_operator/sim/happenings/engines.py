"""Engines that die."""

from __future__ import annotations

from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.happening import Stage, fault


@fault("killed-engine", 4)
def engine_crashes(stage: Stage) -> None:
    """An engine dies, and its runtime starts it again under the default limit."""
    found = stage.pick(stage.engines(EnginePhase.ACTIVE, EnginePhase.BOOTING))
    if found is not None:
        runtime, engine = found
        stage.tell(f"{engine.model} crashes")
        runtime.crash(engine.model, stage.chance.choice([2.0, 8.0, 32.0]))


@fault("failed-engine", 1)
def engine_fails(stage: Stage) -> None:
    """An engine dies for the sixth time, and is not started again."""
    found = stage.pick(stage.engines(EnginePhase.ACTIVE, EnginePhase.BOOTING, EnginePhase.RESTARTING))
    if found is not None:
        runtime, engine = found
        stage.tell(f"{engine.model} fails for good")
        runtime.fail(engine.model)

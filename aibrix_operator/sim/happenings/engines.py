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


@fault("killed-runtime", 3)
def sidecar_killed(stage: Stage) -> None:
    """A runtime's process ends and another takes over; its engines live on, or end with their container."""
    found = stage.pick(stage.runtimes())
    if found is None:
        return
    ip, runtime = found
    takes_engines_along = stage.chance.random() < 0.4
    runtime.restart_sidecar()
    if takes_engines_along:
        for engine in runtime.engines.values():
            if engine.phase in (EnginePhase.ACTIVE, EnginePhase.BOOTING, EnginePhase.SLEEPING):
                runtime.crash(engine.model, stage.chance.choice([2.0, 8.0]))
    stage.tell(f"the runtime at {ip} is killed{' with its engines' if takes_engines_along else ''}")

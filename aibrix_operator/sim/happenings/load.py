"""What requests do to engines."""

from __future__ import annotations

from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.happening import Stage, event


@event("load", 8)
def engine_loaded(stage: Stage) -> None:
    """Requests reach an engine, and it maps KV for them."""
    found = stage.pick(stage.engines(EnginePhase.ACTIVE))
    if found is not None:
        runtime, engine = found
        if runtime.is_full:
            stage.tell(f"{engine.model} finds no memory to map, and dies")
            runtime.crash(engine.model, 2.0)
            return
        engine.running, engine.waiting = stage.chance.randint(0, 6), stage.chance.choice([0, 0, 2])
        engine.metrics_observed = stage.chance.random() < 0.9
        engine.mapped_bytes = stage.chance.randint(0, max(engine.limit_bytes, 0))
        stage.tell(f"{engine.model} maps {engine.mapped_bytes} of {engine.limit_bytes}")


@event("answer", 5)
def request_answered(stage: Stage) -> None:
    """A request is answered that was short enough to be seen by nobody but the counter."""
    found = stage.pick(stage.engines(EnginePhase.ACTIVE))
    if found is not None:
        found[1].finished += 1
        stage.tell(f"{found[1].model} answers a request")


@event("rest", 5)
def engine_at_rest(stage: Stage) -> None:
    """An engine answers its last request and frees its KV."""
    found = stage.pick(stage.engines(EnginePhase.ACTIVE))
    if found is not None:
        found[1].running = found[1].waiting = found[1].mapped_bytes = 0
        stage.tell(f"{found[1].model} has nothing to do")

"""What requests do to engines."""

from __future__ import annotations

import random

from aibrix_operator.api import names
from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS, Object
from aibrix_operator.cluster.watch import Change
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.happening import Stage, event
from aibrix_operator.sim.sidecar import SimulatedEngine
from aibrix_operator.sim.store import wall
from aibrix_operator.sim.world import NAMESPACE, SimulatedCluster

HEARS_S = (0.05, 0.45)
"""So long after its route went an engine is still sent what a gateway had for it."""


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


@event("late-requests", 6)
def requests_come_late(stage: Stage) -> None:
    """For a while gateways hear late: an engine that was just taken off its route to sleep gets a last request."""
    cluster, chance = stage.cluster, stage.chance

    def changed(change: Change, old: Object | None, new: Object | None) -> None:
        for claim in _fell_asleep(old, new):
            how = chance.choice(("runs", "waits", "answered", "unreadable", "asked for"))
            assert new is not None
            arrive = _Late(cluster, new["metadata"]["name"], claim, how, chance)
            cluster.later(chance.uniform(*HEARS_S), arrive)

    seconds = stage.lasts(cluster.store.watch(PODS, changed), chance.uniform(60.0, 300.0))
    stage.tell(f"gateways hear late for {seconds:.0f} s")


def _fell_asleep(old: Object | None, new: Object | None) -> list[str]:
    """Names of claims whose route on the Pod turned from active to sleeping."""
    before, after = ((o or {"metadata": {}})["metadata"].get("annotations") or {} for o in (old, new))
    return [
        key.removeprefix(names.ROUTE_PREFIX)
        for key, text in after.items()
        if key.startswith(names.ROUTE_PREFIX)
        and '"state":"sleeping"' in text
        and '"state":"active"' in before.get(key, "")
    ]


class _Late:
    """One request that comes late."""

    def __init__(self, cluster: SimulatedCluster, pod: str, claim: str, how: str, chance: random.Random) -> None:
        self._cluster, self._pod, self._claim, self._how = cluster, pod, claim, how
        self._lasts_s = chance.uniform(2.0, 20.0)

    def __call__(self) -> None:
        """It arrives, if its engine is still there."""
        objects = self._cluster.store.objects
        pod, claim = (
            objects.get((PODS.plural, NAMESPACE, self._pod)),
            objects.get((MODEL_CLAIMS.plural, NAMESPACE, self._claim)),
        )
        if pod is None or claim is None:
            return
        runtime = self._cluster.runtimes.by_ip.get(pod["status"].get("podIP", ""))
        engine = None if runtime is None else runtime.engines.get(claim["spec"]["modelName"])
        if self._how == "asked for":
            self._cluster.request_wake(self._pod, self._claim, rfc3339(wall()))
        elif engine is not None and engine.phase is EnginePhase.ACTIVE:
            self._reach(engine)

    def _reach(self, engine: SimulatedEngine) -> None:
        if self._how == "runs":
            engine.running += 1
            self._cluster.later(self._lasts_s, lambda: _answer(engine))
        elif self._how == "waits":
            engine.waiting += 1
            self._cluster.later(self._lasts_s, lambda: _answer(engine))
        elif self._how == "answered":
            engine.finished += 1
        else:
            engine.metrics_observed = False
            self._cluster.later(self._lasts_s, lambda: setattr(engine, "metrics_observed", True))


def _answer(engine: SimulatedEngine) -> None:
    engine.running = engine.waiting = 0
    engine.finished += 1

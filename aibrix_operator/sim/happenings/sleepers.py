"""Pool policies, sleepers and who asks for them."""

from __future__ import annotations

from aibrix_operator.api import names
from aibrix_operator.api.route import RouteError, RouteState, parse_route
from aibrix_operator.cluster.resource import PODS
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.happening import GIB, Stage, event, fault
from aibrix_operator.sim.world import NAMESPACE

_LENDS = '"noWakeReserveWhileAsleep":true'
POLICIES = (
    None,
    '{"lifecycle":{"sleepAfterSeconds":60}}',
    f'{{"lifecycle":{{"sleepAfterSeconds":3600,{_LENDS},"sleepToMakeRoomAfterSeconds":30}}}}',
    f'{{"lifecycle":{{"sleepAfterSeconds":40,{_LENDS}}}}}',
    f'{{"lifecycle":{{{_LENDS}}}}}',
    '{"lifecycle":{}}',
)


@event("policy", 2)
def policy_changes(stage: Stage) -> None:
    """A user changes the pool's policy."""
    policy = stage.chance.choice(POLICIES)
    stage.tell(f"the policy is {policy}")
    stage.cluster.set_policy(policy)


@event("ask", 10)
def sleeper_asked_for(stage: Stage) -> None:
    """The gateway asks for a sleeper: for what the route calls sleeping, and only where no request stands."""
    asked = {(pod, claim) for pod, claim, _ in stage.annotated(names.WAKE_PREFIX)}
    asleep = [(pod, claim) for pod, claim, text in stage.routes() if _sleeps(text) and (pod, claim) not in asked]
    found = stage.pick(asleep)
    if found is not None:
        pod, claim = found
        stage.tell(f"{claim} is asked for on {pod}")
        stage.cluster.request_wake(pod, claim)


@event("rush", 0)
def sleepers_asked_for(stage: Stage) -> None:
    """All sleepers of a Pod are asked for at once. In crowded pools alone."""
    asked = {(pod, claim) for pod, claim, _ in stage.annotated(names.WAKE_PREFIX)}
    asleep = [(pod, claim) for pod, claim, text in stage.routes() if _sleeps(text) and (pod, claim) not in asked]
    found = stage.pick(asleep)
    if found is not None:
        claims = [claim for pod, claim in asleep if pod == found[0]]
        stage.tell(f"{', '.join(claims)} are asked for on {found[0]}")
        for claim in claims:
            stage.cluster.request_wake(found[0], claim)


def _sleeps(text: str) -> bool:
    try:
        return parse_route(text).state is RouteState.SLEEPING
    except RouteError:
        return False


@event("asleep-size", 2)
def footprint_differs(stage: Stage) -> None:
    """Engines hold another size when asleep from now on, or one that cannot be measured."""
    found = stage.pick(stage.runtimes())
    if found is not None:
        ip, runtime = found
        runtime.asleep_bytes = stage.chance.choice([None, GIB // 4, GIB, 2 * GIB])
        stage.tell(f"engines at {ip} hold {runtime.asleep_bytes} asleep")


@fault("request-taken-back", 2)
def request_taken_back(stage: Stage) -> None:
    """Somebody takes a wake request off its Pod by hand."""
    found = stage.pick(stage.annotated(names.WAKE_PREFIX))
    if found is not None:
        pod, claim, _ = found
        stage.tell(f"the request for {claim} is taken off {pod}")
        taken = {"metadata": {"annotations": {names.wake_annotation(claim): None}}}
        stage.cluster.store.change(PODS, (NAMESPACE, pod), taken)


@fault("slept-by-hand", 2)
def engine_sleeps_or_wakes(stage: Stage) -> None:
    """Somebody puts an engine to sleep past the operator, or wakes one whose seat is kept."""
    found = stage.pick(stage.engines(EnginePhase.ACTIVE, EnginePhase.SLEEPING))
    if found is None:
        return
    runtime, engine = found
    if engine.phase is EnginePhase.ACTIVE:
        stage.tell(f"{engine.model} is put to sleep by hand")
        runtime.sleep(engine.model, GIB)
    elif engine.limit_bytes >= GIB and _LENDS not in stage.cluster.policy:
        # A lent seat may be somebody else's by now, and no operator can undo what overdraws a card past it.
        stage.tell(f"{engine.model} is woken by hand")
        runtime.wake(engine.model)

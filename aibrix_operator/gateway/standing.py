"""Why a model of a claim has no routable engine, in the words and with the waits that a client is told."""

from __future__ import annotations

from aibrix_operator.api.modelclaim import Reason
from aibrix_operator.api.route import RouteState
from aibrix_operator.gateway.facts import Binding, ClaimFacts, PodFacts
from aibrix_operator.gateway.view import Standing, WakeTarget
from aibrix_operator.runtime_api.client import base_url

SOON_S = 10
ROOM_S = 20
MOVE_S = 30

_RETRY_AFTER_S: dict[str, int | None] = {
    Reason.WAITING_FOR_ROOM: ROOM_S,
    Reason.MAKING_ROOM: ROOM_S,
    Reason.MOVING: MOVE_S,
    # Asking again cannot help: somebody has to change the claim.
    Reason.INVALID_ENGINE_CONFIG: None,
    Reason.INVALID_PER_GPU: None,
    Reason.TOO_LARGE_FOR_ANY_CARD: None,
}


def of_binding(pod: PodFacts, binding: Binding) -> Standing:
    """What the route of a claim's engine says, which is not active."""
    route = binding.route
    wake = _wake_target(pod, binding) if route.state is RouteState.SLEEPING else None
    return Standing(str(route.state), route.reason, _RETRY_AFTER_S.get(route.reason, SOON_S), wake)


def of_claim(claim: ClaimFacts) -> Standing:
    """What the object of a claim says that has no route."""
    return Standing(claim.phase, claim.reason, _RETRY_AFTER_S.get(claim.reason, SOON_S))


def _wake_target(pod: PodFacts, binding: Binding) -> WakeTarget:
    return WakeTarget(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        resource_version=pod.resource_version,
        claim=binding.claim,
        model=binding.route.model,
        already_asked=binding.is_asked_for,
        by_request=binding.route.wake_by_request,
        runtime=base_url(pod.ip) if pod.ip else "",
    )

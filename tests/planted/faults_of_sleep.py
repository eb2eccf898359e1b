"""Engines put to sleep and woken at the wrong time, twice, or for nobody."""

from planting import Fault

SLEEPING, WAKING, ROOM = "modelclaim.sleeping", "modelclaim.waking", "modelclaim.making_room"
ACTIVITY, ROUTES = "modelclaim.activity", "modelclaim.routes"

FAULTS = (
    Fault(
        "an engine is put to sleep before its route is seen gone",
        SLEEPING,
        "if going.sent_s is not None or pod.is_annotating or _is_routed(account, sitting):",
        "if going.sent_s is not None:",
    ),
    Fault(
        "an engine that cannot sleep is put to sleep",
        SLEEPING,
        '        return sitting.claim.spec.engine == "vllm"\n    return engine.can_sleep',
        "        return True\n    return True",
    ),
    Fault(
        "a wake is sent before its card is divided for it",
        WAKING,
        " or not _is_divided_for(account, sitting, draft):",
        ":",
    ),
    Fault(
        "a wake is sent before its seat is charged",
        WAKING,
        "    if not request.is_granted or request.waits_for:",
        "    if request.waits_for:",
    ),
    Fault(
        "a request that is served stays on its Pod",
        WAKING,
        "    draft.remember_claim(claim, wake_request=None, refused_wake=refused, served_wake=served)\n"
        "    draft.drop_wakes.add((pod.uid, claim.name))",
        "    draft.remember_claim(claim, wake_request=None, refused_wake=refused, served_wake=served)",
    ),
    Fault(
        "an engine sleeps without the second look",
        SLEEPING,
        "    if not has_settled:",
        "    if False:",
    ),
)

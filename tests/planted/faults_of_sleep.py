"""Engines put to sleep and woken at the wrong time, twice, or for nobody."""

from planting import CROWDED, Fault

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
        "    if not was_looked_at:",
        "    if False:",
    ),
    Fault(
        "an engine is put to sleep that was used meanwhile",
        SLEEPING,
        "if engine is None or _was_used(engine, going) or",
        "if engine is None or",
    ),
    Fault(
        "an engine that answered a request meanwhile is put to sleep",
        SLEEPING,
        "return engine.request_success_total != going.completions",
        "return False",
    ),
    Fault(
        "a sleep that is called off leaves the route away",
        SLEEPING,
        "    draft.remember_claim(claim, going_to_sleep=None)\n\n\ndef asleep_note",
        "\n\ndef asleep_note",
    ),
    Fault(
        "an engine with requests counts as idle",
        ACTIVITY,
        "            and engine.requests_running + engine.requests_waiting == 0\n",
        "",
    ),
    Fault(
        "who was idle last is put to sleep first",
        WAKING,
        "key=lambda pair: (-pair[0], pair[1].claim.name))\n\n\ndef _has_kept",
        "key=lambda pair: (pair[0], pair[1].claim.name))\n\n\ndef _has_kept",
        first=CROWDED,
    ),
    Fault(
        "whose name is first is put to sleep first",
        WAKING,
        "key=lambda pair: (-pair[0], pair[1].claim.name))\n\n\ndef _has_kept",
        "key=lambda pair: pair[1].claim.name)\n\n\ndef _has_kept",
        first=CROWDED,
    ),
    Fault(
        "a request never ends",
        WAKING,
        "LIFETIME_S = 300.0",
        "LIFETIME_S = 1e9",
        first=CROWDED,
    ),
    Fault(
        "a request ends a minute late",
        WAKING,
        "LIFETIME_S = 300.0",
        "LIFETIME_S = 360.0",
        first=CROWDED,
    ),
    Fault(
        "a request ends a second early",
        WAKING,
        "LIFETIME_S = 300.0",
        "LIFETIME_S = 299.0",
        first=CROWDED,
    ),
    Fault(
        "a request ends after four minutes",
        WAKING,
        "LIFETIME_S = 300.0",
        "LIFETIME_S = 240.0",
        first=CROWDED,
    ),
    Fault(
        "the time of a request begins anew in every pass",
        WAKING,
        "if known is None or known.requested_at != value or known.pod_uid != pod.uid:",
        "if True:",
        first=CROWDED,
    ),
    Fault(
        "double wake: each try is an operation of its own",
        WAKING,
        'operation = f"controller-wake/{pod.uid}/{claim.uid}/{request.requested_at}"',
        'operation = f"controller-wake/{now_s}/{pod.uid}/{claim.uid}/{request.requested_at}"',
        first=CROWDED,
    ),
)
